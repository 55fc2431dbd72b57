"""A shop in Django: migrations of its own models and those of Django, then a round through the ORM."""

import os
import sys
from decimal import Decimal

import django
from django.conf import settings
from django.core.management import call_command

settings.configure(
    INSTALLED_APPS=[
        "django.contrib.contenttypes",
        "django.contrib.auth",
        "django.contrib.sessions",
        "shop",
    ],
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            "HOST": os.environ["PGHOST"],
            "PORT": os.environ["PGPORT"],
            "USER": os.environ["PGUSER"],
            "PASSWORD": os.environ["PGPASSWORD"],
            "NAME": os.environ["PGDATABASE"],
        }
    },
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    USE_TZ=True,
)

# The app is a folder beside the program, because migrations are written to it.
folder = os.path.join(os.getcwd(), "shop")
os.makedirs(os.path.join(folder, "migrations"), exist_ok=True)
for name in ["__init__.py", os.path.join("migrations", "__init__.py")]:
    open(os.path.join(folder, name), "w").close()
with open(os.path.join(folder, "models.py"), "w") as models:
    models.write(
        '''
import uuid
from django.db import models

class Customer(models.Model):
    email = models.EmailField(unique=True)
    name = models.CharField(max_length=100)
    joined = models.DateTimeField(auto_now_add=True)
    born = models.DateField(null=True)
    balance = models.DecimalField(max_digits=10, decimal_places=2, default=0)
    class Meta:
        indexes = [models.Index(fields=["name"])]

class Product(models.Model):
    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    sku = models.CharField(max_length=20, unique=True)
    price = models.DecimalField(max_digits=10, decimal_places=2)
    stock = models.PositiveIntegerField(default=0)
    data = models.JSONField(default=dict)
    class Meta:
        constraints = [models.CheckConstraint(condition=models.Q(price__gte=0), name="price_gte_0")]

class Order(models.Model):
    customer = models.ForeignKey(Customer, on_delete=models.CASCADE, related_name="orders")
    products = models.ManyToManyField(Product, through="Line")

class Line(models.Model):
    order = models.ForeignKey(Order, on_delete=models.CASCADE)
    product = models.ForeignKey(Product, on_delete=models.PROTECT)
    quantity = models.SmallIntegerField(default=1)
    class Meta:
        unique_together = [("order", "product")]
'''
    )
sys.path.insert(0, os.getcwd())
django.setup()
call_command("makemigrations", "shop", verbosity=0)
call_command("migrate", verbosity=0)
call_command("migrate", verbosity=0, check_unapplied=True)

from django.db import IntegrityError, connection, transaction
from django.db.models import Count, F, Sum
from shop.models import Customer, Line, Order, Product

ann = Customer.objects.create(email="a@b.co", name="Ann", balance="1.50")
Customer.objects.create(email="b@b.co", name="Bob")
products = Product.objects.bulk_create(
    [Product(sku=f"s{number}", price=Decimal(number)) for number in range(5)]
)
with transaction.atomic():
    order = Order.objects.create(customer=ann)
    Line.objects.create(order=order, product=products[1], quantity=2)
    Line.objects.create(order=order, product=products[2])
for refused in [
    lambda: Customer.objects.create(email="a@b.co", name="Again"),
    lambda: Product.objects.create(sku="x", price=-1),
    lambda: Line.objects.create(order=order, product=products[1]),
]:
    try:
        with transaction.atomic():
            refused()
    except IntegrityError:
        continue
    raise AssertionError("a broken rule must be refused")
lines = Order.objects.filter(customer__name="Ann").values_list("line__product__sku", "line__quantity")
assert sorted(lines) == [("s1", 2), ("s2", 1)], lines
assert Line.objects.aggregate(total=Sum("quantity")) == {"total": 3}
counts = Customer.objects.annotate(number=Count("orders")).values_list("name", "number")
assert sorted(counts) == [("Ann", 1), ("Bob", 0)], counts
Product.objects.filter(sku="s1").update(stock=F("stock") + 5)
assert Product.objects.get(sku="s1").stock == 5
assert Customer.objects.get_or_create(email="a@b.co", defaults={"name": "x"})[1] is False
with transaction.atomic():
    assert len(list(Product.objects.iterator(chunk_size=2))) == 5
    assert Customer.objects.select_for_update().get(id=ann.id).balance == Decimal("1.50")
ann.delete()
assert (Order.objects.count(), Line.objects.count()) == (0, 0)
assert "shop_order" in connection.introspection.table_names()
connection.close()
print("done")
