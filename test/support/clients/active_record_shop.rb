# A shop in Active Record: its migrations, a round through models, and the way back.
require 'active_record'
require 'fileutils'
require 'stringio'

def check(what, expected, found)
  raise "#{what}: expected #{expected.inspect}, found #{found.inspect}" unless expected == found
end

def refused(kind)
  yield
  raise "#{kind} was expected"
rescue kind => error
  error
end

FileUtils.mkdir_p('migrations')
File.write('migrations/20260101000000_create_shop.rb', <<~RUBY)
  class CreateShop < ActiveRecord::Migration[6.1]
    def change
      enable_extension 'plpgsql'
      enable_extension 'pgcrypto'
      create_table :customers do |t|
        t.string :name, null: false
        t.string :email, limit: 100, index: { unique: true }
        t.decimal :balance, precision: 12, scale: 2, default: 0
        t.boolean :active, null: false, default: true
        t.jsonb :settings, default: {}
        t.date :born_on
        t.integer :orders_count, default: 0
        t.timestamps
      end
      create_table :orders, id: :uuid do |t|
        t.references :customer, null: false, foreign_key: { on_delete: :cascade }
        t.text :title
        t.integer :status, default: 0
        t.datetime :sent_at, precision: 6
        t.string :tags, array: true, default: []
        t.timestamps
        t.index %i[customer_id title], unique: true
      end
      add_check_constraint :customers, 'balance >= 0', name: 'balance_check'
    end
  end
RUBY
File.write('migrations/20260102000000_change_customers.rb', <<~RUBY)
  class ChangeCustomers < ActiveRecord::Migration[6.1]
    def up
      add_column :customers, :nick, :string, null: false, default: 'none'
      rename_column :customers, :nick, :nickname
      change_column :customers, :orders_count, :bigint
      change_column_null :customers, :orders_count, false, 0
      execute "update customers set nickname = name"
    end

    def down
      remove_index :customers, :email
      change_column_default :customers, :nickname, nil
    end
  end
RUBY

ActiveRecord::Migration.verbose = false
ActiveRecord::Base.establish_connection(ENV.fetch('DATABASE_URL'))
connection = ActiveRecord::Base.connection
context = ActiveRecord::MigrationContext.new('migrations', ActiveRecord::SchemaMigration)
context.up(20260101000000)
connection.execute("insert into customers (name, created_at, updated_at) values ('First', now(), now())")
context.migrate
check('versions', [20260101000000, 20260102000000], context.get_all_versions)

class Customer < ActiveRecord::Base
  has_many :orders, dependent: :destroy
end

class Order < ActiveRecord::Base
  belongs_to :customer, counter_cache: true
  enum status: { draft: 0, sent: 1 }
end

check('the value of a migration', 'First', Customer.first.nickname)
ann = Customer.create!(name: 'Ann', email: 'a@b.co', balance: '12.50', settings: { a: [1] }, born_on: '1980-01-02')
order = ann.orders.create!(title: 'One', status: :sent, tags: %w[x y], sent_at: Time.now)
check('a counter', 1, ann.reload.orders_count)
check('a decimal', BigDecimal('12.5'), ann.balance)
check('a document', { 'a' => [1] }, ann.settings)
check('a date', Date.new(1980, 1, 2), ann.born_on)
check('a UUID', 36, order.id.length)
check('a list', %w[x y], order.reload.tags)

now = { created_at: Time.now, updated_at: Time.now }
Customer.insert_all((1..50).map { |n| { name: "n#{n}", email: "e#{n}@b.co", **now } })
Customer.upsert_all([{ name: 'new', email: 'e1@b.co', **now }], unique_by: :email)
check('an upsert', 'new', Customer.find_by(email: 'e1@b.co').name)
check('records', 52, Customer.count)
check('batches', 52, Customer.find_each(batch_size: 10).count)
check('a join', [%w[Ann One]], Customer.joins(:orders).where(orders: { status: :sent }).pluck(:name, 'orders.title'))
check('included records', ['One'], Customer.includes(:orders).find(ann.id).orders.map(&:title))
check('groups', { 'sent' => 1 }, Order.group(:status).count)
check('a sum', BigDecimal('12.5'), Customer.sum(:balance))
check('elements of a list', 1, Order.where("'x' = any(tags)").count)
check('an update of many', 51, Customer.where.not(id: ann.id).update_all('balance = balance + 1'))

refused(ActiveRecord::RecordNotUnique) { Customer.create!(name: 'Other', email: 'a@b.co') }
refused(ActiveRecord::InvalidForeignKey) { Order.insert_all!([{ customer_id: 0, title: 'z', **now }]) }
refused(ActiveRecord::NotNullViolation) { Customer.insert_all!([{ name: nil, **now }]) }
refused(ActiveRecord::ValueTooLong) { Customer.create!(name: 'Long', email: 'x' * 101) }
error = refused(ActiveRecord::StatementInvalid) { ann.update!(balance: -1) }
check('a check', true, error.message.include?('balance_check'))
ann.reload

Customer.transaction do
  ann.lock!
  ann.update!(balance: 20)
  Customer.transaction(requires_new: true) do
    ann.update!(balance: 99)
    raise ActiveRecord::Rollback
  end
end
check('a savepoint', 20, ann.reload.balance)

check('foreign keys', [['customer_id', 'customers', :cascade]],
      connection.foreign_keys('orders').map { |key| [key.column, key.to_table, key.on_delete] })
check('unique indexes', [[%w[customer_id title], true]],
      connection.indexes('orders').select(&:unique).map { |index| [index.columns, index.unique] })
dump = StringIO.new
ActiveRecord::SchemaDumper.dump(connection, dump)
['create_table "orders", id: :uuid', 't.decimal "balance", precision: 12, scale: 2', 'add_foreign_key "orders"'].each do |line|
  check("a dump with #{line}", true, dump.string.include?(line))
end

ann.destroy
check('dependent records', 0, Order.count)
context.rollback
check('a rollback', [20260101000000], context.get_all_versions)
puts 'done'
