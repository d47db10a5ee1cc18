package mistakes

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/guard"
)

// Bank moves money between accounts. The resource of account a is "account/a".
type Bank struct {
	Guard *guard.Guard[pgx.Tx]
	Pool  *pgxpool.Pool
}

// Transfer is one transfer, which takes effect once for each Key.
type Transfer struct {
	Key      string
	From, To string
	Amount   int
}

// ErrFunds: there is too little on the account.
var ErrFunds = errors.New("too little money")

func (t Transfer) resources() []string { return []string{"account/" + t.From, "account/" + t.To} }

// once makes a call that is repeated return the first one's receipt.
func (t Transfer) once() guard.ValueOption { return guard.Once(t.Key, fmt.Append(nil, t)) }

// Receipt says what a transfer has left on the accounts.
type Receipt struct{ From, To int }

// Do is the transfer as it should be: it names both accounts, reads and writes in the
// transaction that it is given, and has a key.
func (b *Bank) Do(ctx context.Context, t Transfer) error {
	_, err := guard.Value(ctx, b.Guard, t.resources(), func(ctx context.Context, tx pgx.Tx) (Receipt, error) {
		from, to, err := balances(ctx, tx, t)
		if err != nil {
			return Receipt{}, err
		}
		return write(ctx, tx, t, from, to)
	}, t.once())
	return err
}

type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

func balances(ctx context.Context, db querier, t Transfer) (from, to int, err error) {
	const query = "select (select balance from account where name = $1), (select balance from account where name = $2)"
	err = db.QueryRow(ctx, query, t.From, t.To).Scan(&from, &to)
	if err == nil && from < t.Amount {
		err = ErrFunds
	}
	return from, to, err
}

func write(ctx context.Context, tx pgx.Tx, t Transfer, from, to int) (Receipt, error) {
	b := &pgx.Batch{}
	b.Queue("update account set balance = $2 where name = $1", t.From, from-t.Amount)
	b.Queue("update account set balance = $2 where name = $1", t.To, to+t.Amount)
	b.Queue("insert into transfer (sender, receiver, amount) values ($1, $2, $3)", t.From, t.To, t.Amount)
	return Receipt{from - t.Amount, to + t.Amount}, tx.SendBatch(ctx, b).Close()
}
