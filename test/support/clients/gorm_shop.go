// A shop in GORM: its migration, twice, and a round through models.
package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/logger"
)

type Customer struct {
	ID     uint
	Name   string  `gorm:"size:50;not null;uniqueIndex"`
	Orders []Order `gorm:"constraint:OnDelete:CASCADE"`
}

type Order struct {
	gorm.Model
	Code       *string    `gorm:"unique"`
	Total      float64    `gorm:"type:numeric(10,2);check:total >= 0"`
	Paid       bool       `gorm:"default:true"`
	Due        *time.Time `gorm:"type:date"`
	Note       string     `gorm:"size:10;index"`
	CustomerID *uint
}

func must(what string, err error) {
	if err != nil {
		panic(fmt.Sprintf("%s: %v", what, err))
	}
}

func refused(expected error, err error) {
	if !errors.Is(err, expected) {
		panic(fmt.Sprintf("expected %v, found %v", expected, err))
	}
}

func equal[Value comparable](what string, expected, found Value) {
	if expected != found {
		panic(fmt.Sprintf("%s: expected %v, found %v", what, expected, found))
	}
}

func main() {
	config := &gorm.Config{Logger: logger.Default.LogMode(logger.Silent), TranslateError: true}
	db, err := gorm.Open(postgres.Open(os.Getenv("DATABASE_URL")), config)
	must("open", err)
	// The second one finds nothing to change.
	must("first migration", db.AutoMigrate(&Customer{}, &Order{}))
	must("second migration", db.AutoMigrate(&Customer{}, &Order{}))

	code := "a"
	ann := Customer{Name: "Ann", Orders: []Order{{Code: &code, Total: 10.5}, {Note: "second"}}}
	must("create", db.Create(&ann).Error)
	var order Order
	must("first", db.First(&order, "code = ?", "a").Error)
	equal("total", 10.5, order.Total)
	equal("default", true, order.Paid)
	must("update", db.Model(&order).Update("total", 12.25).Error)
	refused(gorm.ErrCheckConstraintViolated, db.Model(&order).Update("total", -1).Error)
	refused(gorm.ErrDuplicatedKey, db.Create(&Order{Code: &code}).Error)
	refused(gorm.ErrDuplicatedKey, db.Create(&Customer{Name: "Ann"}).Error)
	nobody := uint(99)
	refused(gorm.ErrForeignKeyViolated, db.Create(&Order{CustomerID: &nobody}).Error)
	refused(gorm.ErrRecordNotFound, db.First(&Order{}, "code = ?", "nothing").Error)
	upsert := clause.OnConflict{
		Columns:   []clause.Column{{Name: "name"}},
		DoUpdates: clause.AssignmentColumns([]string{"name"}),
	}
	must("upsert", db.Clauses(upsert).Create(&Customer{Name: "Ann"}).Error)

	var all []Customer
	must("preload", db.Preload("Orders").Joins("left join orders on orders.customer_id = customers.id").Group("customers.id").Find(&all).Error)
	equal("customers", 1, len(all))
	equal("orders", 2, len(all[0].Orders))
	must("transaction", db.Transaction(func(tx *gorm.DB) error {
		must("lock", tx.Clauses(clause.Locking{Strength: "UPDATE"}).First(&order).Error)
		must("kept", tx.Create(&Customer{Name: "kept"}).Error)
		tx.SavePoint("before")
		must("undone", tx.Create(&Customer{Name: "undone"}).Error)
		return tx.RollbackTo("before").Error
	}))
	var count int64
	must("count", db.Model(&Customer{}).Count(&count).Error)
	equal("count", int64(2), count)
	must("soft deletion", db.Delete(&order).Error)
	must("count", db.Model(&Order{}).Count(&count).Error)
	equal("orders that are left", int64(1), count)
	many := make([]Customer, 300)
	for n := range many {
		many[n].Name = fmt.Sprint("n", n)
	}
	must("batches", db.CreateInBatches(many, 100).Error)
	seen := 0
	must("find in batches", db.FindInBatches(&all, 100, func(_ *gorm.DB, _ int) error {
		seen += len(all)
		return nil
	}).Error)
	equal("seen", 302, seen)

	migrator := db.Migrator()
	equal("check", true, migrator.HasConstraint(&Order{}, "chk_orders_total"))
	equal("index", true, migrator.HasIndex(&Customer{}, "idx_customers_name"))
	must("alter", migrator.AlterColumn(&Customer{}, "Name"))
	must("rename", migrator.RenameColumn(&Order{}, "note", "remark"))
	equal("column", true, migrator.HasColumn(&Order{}, "remark"))
	fmt.Println("done")
}
