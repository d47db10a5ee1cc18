#!/usr/bin/env bash
# gorm.io/gorm v1.31.2, gorm.io/plugin/dbresolver v1.6.2: db.Connection(fn) hands fn a *gorm.DB on one connection, yet
# statements of fn run on others, without an error:
#   - a Session with PrepareStmt made in fn uses the pool that the *gorm.DB was opened with
#     (Session takes Config.ConnPool wherever Statement.ConnPool is no transaction);
#   - with dbresolver registered, each statement goes to a pool of the resolver
#     (it leaves only transactions where they are).
#
# Seen: fn runs four statements, the first and the last directly.
#   without a plugin:  connection 1, prepared on connection 2, in a prepared transaction on connection 2, connection 1
#   with dbresolver:   a connection of the replica, then three times connection 2 of the pool
#
# Why it matters to who fences writes: a session's advisory lock, a temporary table, a setting, or a check that was made
# on the connection of fn says nothing of a write that runs on another. The write is not undone with it either.
#
# The driver is a fake: it notes the connection of each statement. Exits 1 if the behaviour has changed.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
cat >go.mod <<'EOF'
module finding

go 1.24

require (
	gorm.io/gorm v1.31.2
	gorm.io/plugin/dbresolver v1.6.2
)
EOF
cat >main.go <<'EOF'
package main

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"io"
	"os"
	"slices"

	"gorm.io/gorm"
	"gorm.io/gorm/utils/tests"
	"gorm.io/plugin/dbresolver"
)

var ran []string // the connection of each statement

// pool names the connections that it opens, and is its driver.
type pool struct {
	name  string
	conns int
}

func (p *pool) Driver() driver.Driver            { return p }
func (p *pool) Open(string) (driver.Conn, error) { return p.Connect(context.Background()) }
func (p *pool) Connect(context.Context) (driver.Conn, error) {
	p.conns++
	return conn(fmt.Sprint(p.name, " ", p.conns)), nil
}

// conn is a connection, its transaction, and its statement.
type conn string

func (c conn) Prepare(string) (driver.Stmt, error) { return c, nil }
func (c conn) Begin() (driver.Tx, error)           { return c, nil }
func (conn) Close() error                          { return nil }
func (conn) Commit() error                         { return nil }
func (conn) Rollback() error                       { return nil }
func (conn) NumInput() int                         { return -1 }
func (c conn) Exec([]driver.Value) (driver.Result, error) {
	ran = append(ran, string(c))
	return driver.RowsAffected(1), nil
}
func (c conn) Query([]driver.Value) (driver.Rows, error) {
	ran = append(ran, string(c))
	return none{}, nil
}

type none struct{}

func (none) Columns() []string         { return []string{"x"} }
func (none) Close() error              { return nil }
func (none) Next([]driver.Value) error { return io.EOF }

// dialector opens a pool of its own.
type dialector struct {
	tests.DummyDialector
	name string
}

func (d dialector) Initialize(db *gorm.DB) error {
	db.ConnPool = sql.OpenDB(&pool{name: d.name})
	return d.DummyDialector.Initialize(db)
}

func check(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func main() {
	changed := false
	for _, with := range []struct {
		name    string
		plugins []gorm.Plugin
		want    []string
	}{
		{"without a plugin", nil, []string{"pool 1", "pool 2", "pool 2", "pool 1"}},
		{"with dbresolver", []gorm.Plugin{dbresolver.Register(dbresolver.Config{Replicas: []gorm.Dialector{dialector{name: "replica"}}})},
			[]string{"replica 1", "pool 2", "pool 2", "pool 2"}},
	} {
		db, err := gorm.Open(dialector{name: "pool"}, &gorm.Config{SkipDefaultTransaction: true})
		check(err)
		for _, plugin := range with.plugins {
			check(db.Use(plugin))
		}
		ran = nil
		check(db.Connection(func(tx *gorm.DB) error {
			write := func(tx *gorm.DB) error { return tx.Exec("update stock set qty = qty - 1").Error }
			prepared := tx.Session(&gorm.Session{NewDB: true, PrepareStmt: true})
			check(tx.Session(&gorm.Session{NewDB: true}).Raw("select qty from stock").Scan(new(int)).Error)
			check(write(prepared))
			check(prepared.Transaction(write))
			return write(tx.Session(&gorm.Session{NewDB: true}))
		}))
		fmt.Printf("%s: %q\n", with.name, ran)
		changed = changed || !slices.Equal(ran, with.want)
	}
	if changed {
		fmt.Println("the behaviour has changed")
		os.Exit(1)
	}
}
EOF
GOFLAGS=-mod=mod go run .
