package orm

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
	gormschema "gorm.io/gorm/schema"
	"gorm.io/plugin/dbresolver"

	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/guard/guardtest"
	"github.com/fencekit/fencekit/guardsql"
)

const takeOne = "update stock set qty = qty - 1 where sku = '42'"

func take(db *gorm.DB) error { return db.Exec(takeOne).Error }

var prepare = &gorm.Session{PrepareStmt: true}

// gormTakes are the ways to a statement that a function has: each takes one.
var gormTakes = map[string]func(db *gorm.DB) error{
	"as it is":                take,
	"Save":                    func(db *gorm.DB) error { return db.Save(&gormStock{"42", 4}).Error },
	"Raw":                     func(db *gorm.DB) error { return db.Raw(takeOne + " returning qty").Scan(new(int)).Error },
	"Transaction":             func(db *gorm.DB) error { return db.Transaction(take) },
	"nested Transaction":      func(db *gorm.DB) error { return db.Transaction(nested) },
	"SavePoint":               func(db *gorm.DB) error { return db.Transaction(savePoint) },
	"Begin":                   begin,
	"Connection":              func(db *gorm.DB) error { return db.Connection(take) },
	"DB":                      takeOfDB,
	"PrepareStmt":             func(db *gorm.DB) error { return take(db.Session(prepare)) },
	"PrepareStmt Transaction": func(db *gorm.DB) error { return db.Session(prepare).Transaction(take) },
	"PrepareStmt twice": func(db *gorm.DB) error {
		return errors.Join(take(db.Session(prepare)), giveAndTake(db.Session(prepare)))
	},
	"PrepareStmt then in a Tx": func(db *gorm.DB) error {
		return errors.Join(take(db.Session(prepare)), db.Session(prepare).Transaction(giveAndTake))
	},
	"Transaction PrepareStmt": func(db *gorm.DB) error {
		return db.Transaction(func(tx *gorm.DB) error { return take(tx.Session(prepare)) })
	},
	"PrepareStmt in two Txs": func(db *gorm.DB) error {
		return errors.Join(db.Session(prepare).Transaction(take), db.Session(prepare).Transaction(giveAndTake))
	},
	"dbresolver.Write": func(db *gorm.DB) error { return take(db.Clauses(dbresolver.Write)) },
	"dbresolver.Use":   func(db *gorm.DB) error { return take(db.Clauses(dbresolver.Use("stock"))) },
	"dbresolver.Use of Prepare": func(db *gorm.DB) error {
		return take(db.Session(prepare).Clauses(dbresolver.Use("stock"), dbresolver.Write))
	},
}

func nested(tx *gorm.DB) error { return tx.Transaction(take) }

func savePoint(tx *gorm.DB) error {
	return errors.Join(tx.SavePoint("before").Error, take(tx), tx.RollbackTo("before").Error, take(tx))
}

func begin(db *gorm.DB) error {
	tx := db.Begin()
	return errors.Join(tx.Error, take(tx), tx.Commit().Error)
}

func giveAndTake(db *gorm.DB) error {
	return errors.Join(db.Exec("update stock set qty = qty + 1").Error, take(db))
}

func takeOfDB(db *gorm.DB) error {
	of, err := db.DB()
	if err != nil {
		return err
	}
	_, err = of.ExecContext(db.Statement.Context, takeOne)
	return err
}

// elsewhere is another database, with 99 of product 42.
func elsewhere(t *testing.T) (*shop, *sql.DB) {
	pool, err := pgxpool.New(context.Background(), template.Database(t))
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	s := &shop{t: t, pool: pool}
	s.set(99)
	db := stdlib.OpenDBFromPool(pool)
	t.Cleanup(func() { _ = db.Close() })
	return s, db
}

func (s *shop) set(qty int64) {
	s.t.Helper()
	_, err := s.pool.Exec(s.t.Context(), "update stock set qty = $1", qty)
	require.NoError(s.t, err)
}

var errUndo = errors.New("undo")

func TestBindGORM_EverySessionIsInTheGuardedTransaction(t *testing.T) {
	t.Parallel()
	resolver := func(t *testing.T, base *gorm.DB) *shop {
		other, db := elsewhere(t)
		there := []gorm.Dialector{postgres.New(postgres.Config{Conn: db})}
		require.NoError(t, base.Use(dbresolver.Register(dbresolver.Config{Sources: there, Replicas: there})))
		return other
	}
	warm := func(t *testing.T, base *gorm.DB) *shop {
		require.NoError(t, errors.Join(take(base.Session(prepare)), base.Session(prepare).First(&gormStock{}).Error))
		return nil
	}
	for name, of := range map[string]struct {
		prepare bool
		with    func(t *testing.T, base *gorm.DB) (other *shop)
	}{
		"a plain base": {}, "Config.PrepareStmt": {prepare: true},
		"a warm cache": {with: warm}, "Config.PrepareStmt and a warm cache": {true, warm},
		"dbresolver": {with: resolver}, "Config.PrepareStmt and dbresolver": {true, resolver},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShop(t)
			g := guardtest.New(t, s.store)
			base := baseGORM(t, s.pool, &gorm.Config{PrepareStmt: of.prepare})
			var other *shop
			if of.with != nil {
				other = of.with(t, base)
			}
			for _, way := range slices.Sorted(maps.Keys(gormTakes)) {
				s.set(5)
				for _, ends := range []error{errUndo, nil} {
					var seen []int64
					err := guard.Do(t.Context(), g, "sku/42", guardsql.With(func(ctx context.Context, db *sql.DB) error {
						bound, err := bindGORM(ctx, base, db)
						if err != nil {
							return err
						}
						read := func(db *gorm.DB) error {
							var stock gormStock
							err := db.First(&stock).Error
							seen = append(seen, stock.Qty)
							return err
						}
						if err := errors.Join(read(bound), gormTakes[way](bound), read(bound), read(bound.Session(prepare)), read(bound.Clauses(dbresolver.Read))); err != nil {
							return err
						}
						return ends
					}))
					require.ErrorIs(t, err, ends, way)
					require.Equal(t, []int64{5, 4, 4, 4}, seen, way)
					qty := int64(4)
					if ends != nil {
						qty = 5
					}
					s.require(rows{Qty: qty})
				}
				require.NoError(t, base.Session(prepare).Exec("update stock set qty = qty").Error, way)
				require.NoError(t, base.Transaction(func(tx *gorm.DB) error { return tx.First(&gormStock{}).Error }), way)
			}
			if other != nil {
				other.require(rows{Qty: 99})
			}
		})
	}
}

// What differs has no effect in a guarded transaction, or is another on purpose.
func TestBindGORM_KeepsTheSettings(t *testing.T) {
	config := &gorm.Config{Logger: logger.Discard, NowFunc: time.Now, NamingStrategy: gormschema.NamingStrategy{TablePrefix: "x"}}
	for _, field := range reflect.ValueOf(config).Elem().Fields() {
		switch field.Kind() {
		case reflect.Bool:
			field.SetBool(true)
		case reflect.Int, reflect.Int64:
			field.SetInt(7)
		}
	}
	config.PrepareStmt = false // it would start a goroutine
	base, err := gorm.Open(postgres.New(postgres.Config{Conn: &sql.DB{}}), config)
	require.NoError(t, err)
	bound, err := bindGORM(t.Context(), base, &sql.DB{})
	require.NoError(t, err)
	var differ []string
	for field, of := range reflect.ValueOf(*base.Config).Fields() {
		if field.IsExported() && fmt.Sprint(of) != fmt.Sprint(reflect.ValueOf(*bound.Config).FieldByIndex(field.Index)) {
			differ = append(differ, field.Name)
		}
	}
	require.Equal(t, []string{"PrepareStmtMaxSize", "PrepareStmtTTL", "DisableForeignKeyConstraintWhenMigrating", "IgnoreRelationshipsWhenMigrating", "ConnPool", "Dialector"}, differ)
}
