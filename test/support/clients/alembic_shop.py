"""A shop in SQLAlchemy: Alembic writes and applies migrations, then a session works with the tables."""

import enum
import os
import uuid
from datetime import datetime, timedelta
from decimal import Decimal

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy import (
    URL,
    CheckConstraint,
    DateTime,
    Enum,
    ForeignKey,
    Integer,
    Numeric,
    String,
    Text,
    Uuid,
    create_engine,
    func,
    inspect,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import DeclarativeBase, Session, mapped_column, relationship

url = URL.create(
    "postgresql+psycopg",
    os.environ["PGUSER"],
    os.environ["PGPASSWORD"],
    os.environ["PGHOST"],
    int(os.environ["PGPORT"]),
    os.environ["PGDATABASE"],
)


class Base(DeclarativeBase):
    pass


SEEN = datetime(2026, 3, 4, 5, 6, 7, 89000)


class State(enum.Enum):
    new = "new"
    paid = "paid"


class Customer(Base):
    __tablename__ = "customers"
    id = mapped_column(Integer, primary_key=True)
    email = mapped_column(String(100), unique=True, nullable=False)
    joined = mapped_column(DateTime(timezone=True), server_default=func.now())
    seen = mapped_column(DateTime, nullable=False, default=lambda: SEEN)
    balance = mapped_column(Numeric(10, 2), nullable=False, server_default="0")
    orders = relationship("Order", back_populates="customer", cascade="all, delete-orphan")


class Order(Base):
    __tablename__ = "orders"
    id = mapped_column(Uuid, primary_key=True, default=uuid.uuid4)
    customer_id = mapped_column(
        ForeignKey("customers.id", ondelete="CASCADE"), nullable=False, index=True
    )
    state = mapped_column(Enum(State), nullable=False, default=State.new)
    note = mapped_column(Text)
    customer = relationship("Customer", back_populates="orders")
    __table_args__ = (CheckConstraint("note <> 'bad'", name="note_ok"),)


engine = create_engine(url)
folder = os.path.join(os.getcwd(), "migrations")
os.makedirs(os.path.join(folder, "versions"), exist_ok=True)
with open(os.path.join(folder, "script.py.mako"), "w") as template:
    template.write(
        "from alembic import op\nimport sqlalchemy as sa\n"
        "revision = ${repr(up_revision)}\ndown_revision = ${repr(down_revision)}\n"
        "def upgrade():\n    ${upgrades}\ndef downgrade():\n    ${downgrades}\n"
    )
with open(os.path.join(folder, "env.py"), "w") as env:
    env.write(
        "from alembic import context\n"
        "config = context.config\n"
        "with config.attributes['engine'].connect() as connection:\n"
        "    context.configure(connection=connection, target_metadata=config.attributes['metadata'])\n"
        "    with context.begin_transaction():\n"
        "        context.run_migrations()\n"
    )
config = Config()
config.set_main_option("script_location", folder)
config.attributes.update(engine=engine, metadata=Base.metadata)
command.revision(config, message="first", autogenerate=True)
command.upgrade(config, "head")
with engine.connect() as connection:
    found = compare_metadata(MigrationContext.configure(connection), Base.metadata)
assert not [each for each in found if isinstance(each, list)], found

with Session(engine) as session:
    customer = Customer(email="a@b.co", orders=[Order(note="x"), Order()])
    session.add(customer)
    session.commit()
    assert (customer.id, customer.balance, len(customer.orders)) == (1, Decimal(0), 2)
    assert customer.seen == SEEN and customer.joined.tzinfo is not None
    late = select(Customer.id).where(Customer.seen > SEEN - timedelta(seconds=1))
    assert session.scalar(late) == 1
    session.add(Customer(email="a@b.co"))
    try:
        session.commit()
        raise AssertionError("a taken value must be refused")
    except IntegrityError:
        session.rollback()
    session.execute(update(Customer).values(balance=Customer.balance + Decimal("2.5")))
    with session.begin_nested():
        session.add(Customer(email="n@b.co"))
    session.commit()
    assert session.get(Customer, customer.id).balance == Decimal("2.50")
    joined = select(func.count()).select_from(Order).join(Customer).where(Order.state == State.new)
    assert session.scalar(joined) == 2
    session.delete(session.get(Customer, customer.id))
    session.commit()
    assert session.scalar(select(func.count()).select_from(Order)) == 0

# A second migration, with rows between changes of the schema.
with open(os.path.join(folder, "versions", "second.py"), "w") as second:
    with engine.connect() as connection:
        head = MigrationContext.configure(connection).get_current_revision()
    second.write(
        f"""
from alembic import op
import sqlalchemy as sa
revision = 'second'
down_revision = {head!r}
def upgrade():
    op.add_column('customers', sa.Column('name', sa.String(50)))
    op.execute("insert into customers (email, name, seen) values ('z@b.co', 'Z', now())")
    op.alter_column('customers', 'name', new_column_name='full_name')
    op.create_table('tags', sa.Column('id', sa.BigInteger, primary_key=True), sa.Column('label', sa.Text))
    op.create_unique_constraint('tags_label', 'tags', ['label'])
    op.add_column('orders', sa.Column('tag_id', sa.BigInteger))
    op.create_foreign_key('orders_tag_id_fkey', 'orders', 'tags', ['tag_id'], ['id'])
def downgrade():
    op.drop_column('orders', 'tag_id')
    op.drop_table('tags')
"""
    )
command.upgrade(config, "head")
inspector = inspect(engine)
assert sorted(inspector.get_table_names()) == ["alembic_version", "customers", "orders", "tags"]
assert [key["referred_table"] for key in inspector.get_foreign_keys("orders")].count("tags") == 1
command.downgrade(config, "-1")
assert "tags" not in inspect(engine).get_table_names()
engine.dispose()
print("done")
