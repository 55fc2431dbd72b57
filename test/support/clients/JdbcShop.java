import java.math.BigDecimal;
import java.sql.Connection;
import java.sql.DatabaseMetaData;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Savepoint;
import java.sql.Statement;
import java.time.LocalDate;
import java.util.UUID;

/** A shop in Java with pgjdbc: a migration in a transaction, prepared statements, batches, savepoints and metadata. */
public class JdbcShop {
  static void expect(boolean isTrue, String what) {
    if (!isTrue) throw new IllegalStateException("expected: " + what);
  }

  static int count(ResultSet rows) throws SQLException {
    int count = 0;
    while (rows.next()) count++;
    return count;
  }

  public static void main(String[] args) throws Exception {
    String place = System.getenv("PGHOST") + ":" + System.getenv("PGPORT") + "/" + System.getenv("PGDATABASE");
    Connection connection =
        DriverManager.getConnection("jdbc:postgresql://" + place, System.getenv("PGUSER"), System.getenv("PGPASSWORD"));
    connection.setAutoCommit(false);
    try (Statement statement = connection.createStatement()) {
      statement.execute(
          "create table customers (id serial primary key, email varchar(100) not null unique, "
              + "balance numeric(10, 2), born date, ref uuid, active boolean default true)");
      statement.execute(
          "create table orders (id serial primary key, customer_id int not null references customers (id) on delete cascade)");
    }
    long id;
    try (PreparedStatement insert =
        connection.prepareStatement(
            "insert into customers (email, balance, born, ref) values (?, ?, ?, ?)", Statement.RETURN_GENERATED_KEYS)) {
      insert.setString(1, "a@b.co");
      insert.setBigDecimal(2, new BigDecimal("12.50"));
      insert.setObject(3, LocalDate.of(2026, 1, 2));
      insert.setObject(4, UUID.randomUUID());
      insert.executeUpdate();
      ResultSet keys = insert.getGeneratedKeys();
      keys.next();
      id = keys.getLong("id");
    }
    connection.commit();

    // After five uses, the driver prepares a statement on the server, and reads binary values.
    try (PreparedStatement select =
        connection.prepareStatement("select balance, born, active from customers where id = ? and email like ?")) {
      for (int use = 0; use < 8; use++) {
        select.setLong(1, id);
        select.setString(2, "a%");
        ResultSet found = select.executeQuery();
        expect(found.next(), "the customer");
        expect(found.getBigDecimal(1).equals(new BigDecimal("12.50")), "the balance");
        expect(found.getObject(2, LocalDate.class).equals(LocalDate.of(2026, 1, 2)), "the date");
        expect(found.getBoolean(3), "the default");
      }
    }

    Savepoint savepoint = connection.setSavepoint();
    try (Statement statement = connection.createStatement()) {
      statement.executeUpdate("insert into customers (email) values ('a@b.co')");
      expect(false, "a taken value is refused");
    } catch (SQLException refusal) {
      expect("23505".equals(refusal.getSQLState()), "the code of a taken value");
      connection.rollback(savepoint);
    }
    try (PreparedStatement insert = connection.prepareStatement("insert into orders (customer_id) values (?)")) {
      for (int number = 0; number < 3; number++) {
        insert.setLong(1, id);
        insert.addBatch();
      }
      expect(insert.executeBatch().length == 3, "three orders");
    }
    connection.commit();
    try (Statement statement = connection.createStatement()) {
      statement.setFetchSize(2);
      expect(count(statement.executeQuery("select id from orders")) == 3, "three orders in parts");
      statement.executeUpdate("delete from orders");
    }
    connection.rollback();

    DatabaseMetaData metadata = connection.getMetaData();
    expect(count(metadata.getTables(null, "public", "%", new String[] {"TABLE"})) == 2, "two tables");
    expect(count(metadata.getColumns(null, "public", "customers", "%")) == 6, "six columns");
    expect(count(metadata.getPrimaryKeys(null, "public", "customers")) == 1, "a primary key");
    expect(count(metadata.getImportedKeys(null, "public", "orders")) == 1, "a foreign key");
    expect(count(metadata.getIndexInfo(null, "public", "customers", true, true)) == 2, "two unique indexes");

    connection.setAutoCommit(true);
    try (Statement statement = connection.createStatement()) {
      expect(statement.executeUpdate("update customers set balance = balance + 1") == 1, "an updated row");
      expect(statement.executeUpdate("delete from customers") == 1, "a deleted row");
      ResultSet left = statement.executeQuery("select count(*) from orders");
      left.next();
      expect(left.getInt(1) == 0, "no orders");
    }
    connection.close();
    System.out.println("done");
  }
}
