package control

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

var tokenCompare = Control{
	Name:   "token-compare",
	Title:  "Fencing token, compared only at the write",
	Recipe: "Takes the create revision of an etcd lock as its token, and writes only if no higher token has written.",
	Flaw:   "The successor has read but not yet written: no higher token has written, so the stale holder writes, and the successor overwrites that.",
	Needs:  []Need{Etcd},
	Open: func(_ context.Context, s Servers, _ string) (Lock, error) {
		return openEtcd(s, "token-compare", func(ctx context.Context, m mutex) (Held, error) {
			token, err := m.createRevision(ctx)
			return compared{m, token}, err
		})
	},
	Prepare: prepareTokens,
}

// prepareTokens makes the table of the highest tokens.
func prepareTokens(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := pool.Exec(ctx, "create table if not exists control_token (resource text primary key, token bigint not null)")
	return err
}

// createRevision is the create revision of the key, by which etcd orders waiters.
func (m mutex) createRevision(ctx context.Context) (int64, error) {
	answer, err := m.session.Client().Get(ctx, m.mutex.Key())
	if err != nil {
		return 0, err
	}
	if len(answer.Kvs) == 0 {
		return 0, fmt.Errorf("%w: its key is gone", ErrLockLost)
	}
	return answer.Kvs[0].CreateRevision, nil
}

// compared is a lock whose token is compared with the highest token that has written.
type compared struct {
	mutex
	token int64
}

func (h compared) Token() int64 { return h.token }

func (h compared) Check(ctx context.Context, tx pgx.Tx) error {
	const raise = `
		insert into control_token as fence (resource, token) values ($1, $2)
		on conflict (resource) do update set token = excluded.token where fence.token <= excluded.token`
	tag, err := tx.Exec(ctx, raise, h.resource, h.token)
	if err == nil && tag.RowsAffected() == 0 {
		return fmt.Errorf("%w: a token above %d has written", ErrLockLost, h.token)
	}
	return err
}
