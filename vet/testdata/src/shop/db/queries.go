// Package db is as sqlc generates it with sql_package "pgx/v5".
package db

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

type DBTX interface {
	Exec(context.Context, string, ...interface{}) (pgconn.CommandTag, error)
	Query(context.Context, string, ...interface{}) (pgx.Rows, error)
	QueryRow(context.Context, string, ...interface{}) pgx.Row
}

func New(db DBTX) *Queries { return &Queries{db: db} }

type Queries struct{ db DBTX }

func (q *Queries) WithTx(tx pgx.Tx) *Queries { return &Queries{db: tx} }

const getStock = `-- name: GetStock :one
SELECT sku, qty, price FROM stock WHERE sku = $1
`

type Stock struct {
	Sku   string
	Qty   int32
	Price int64
}

func (q *Queries) GetStock(ctx context.Context, sku string) (Stock, error) {
	row := q.db.QueryRow(ctx, getStock, sku)
	var i Stock
	err := row.Scan(&i.Sku, &i.Qty, &i.Price)
	return i, err
}

const setStock = `-- name: SetStock :exec
UPDATE stock SET qty = $2 WHERE sku = $1
`

type SetStockParams struct {
	Sku string
	Qty int32
}

func (q *Queries) SetStock(ctx context.Context, arg SetStockParams) error {
	_, err := q.db.Exec(ctx, setStock, arg.Sku, arg.Qty)
	return err
}

const createSale = `-- name: CreateSale :one
INSERT INTO sale (customer, sku, qty, total) VALUES ($1, $2, $3, $4) RETURNING id
`

type CreateSaleParams struct {
	Customer int64
	Sku      string
	Qty      int32
	Total    int64
}

func (q *Queries) CreateSale(ctx context.Context, arg CreateSaleParams) (id int64, err error) {
	err = q.db.QueryRow(ctx, createSale, arg.Customer, arg.Sku, arg.Qty, arg.Total).Scan(&id)
	return id, err
}

const listStock = `-- name: ListStock :many
SELECT sku, qty, price FROM stock ORDER BY sku
`

func (q *Queries) ListStock(ctx context.Context) ([]Stock, error) {
	rows, err := q.db.Query(ctx, listStock)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[Stock])
}

const customerOf = `-- name: CustomerOf :one
SELECT customer FROM session WHERE token = $1
`

func (q *Queries) CustomerOf(ctx context.Context, token string) (customer int64, err error) {
	err = q.db.QueryRow(ctx, customerOf, token).Scan(&customer)
	return customer, err
}
