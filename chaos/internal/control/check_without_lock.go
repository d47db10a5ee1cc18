package control

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	clientv3 "go.etcd.io/etcd/client/v3"
)

var checkWithoutLock = Control{
	Name:        "check-without-lock",
	Title:       "A token, without waiting and without a row lock",
	Recipe:      "Takes a revision of etcd as its token without waiting, reads the highest token that has written, compares in Go, and writes.",
	Flaw:        "Two work at the same time, and the lower token commits first: the higher one's check passes.",
	RedByDesign: true,
	Needs:       []Need{Etcd},
	Open: func(_ context.Context, s Servers, _ string) (Lock, error) {
		client, err := newEtcd(s)
		if err != nil {
			return nil, err
		}
		return &revisions{client}, nil
	},
	Prepare: prepareTokens,
}

// revisions gives out tokens, and excludes no process.
type revisions struct{ client *clientv3.Client }

func (l *revisions) Acquire(ctx context.Context, resource string) (Held, error) {
	answer, err := l.client.Put(ctx, keyPrefix("check-without-lock")+resource, "")
	if err != nil {
		return nil, err
	}
	return looked{resource, answer.Header.Revision}, nil
}

func (l *revisions) Close(context.Context) error { return l.client.Close() }

// looked is a token that is compared with what was read a moment ago.
type looked struct {
	resource string
	token    int64
}

func (h looked) Token() int64 { return h.token }

func (h looked) Check(ctx context.Context, tx pgx.Tx) error {
	var highest int64
	err := tx.QueryRow(ctx, "select token from control_token where resource = $1", h.resource).Scan(&highest)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return err
	}
	if highest > h.token {
		return fmt.Errorf("%w: token %d has written, above %d", ErrLockLost, highest, h.token)
	}
	const store = `
		insert into control_token (resource, token) values ($1, $2)
		on conflict (resource) do update set token = excluded.token`
	_, err = tx.Exec(ctx, store, h.resource, h.token)
	return err
}

func (h looked) Release(context.Context) error { return nil }
