package control

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	clientv3 "go.etcd.io/etcd/client/v3"
)

var leaseEquality = Control{
	Name:   "lease-equality",
	Title:  "Lease id of etcd, compared for equality",
	Recipe: "Writes only if the lease that wrote last is its own, or no longer exists in etcd.",
	Flaw:   "Leases have no order: the stale holder and its successor both find that the earlier writer's lease is gone, and both write.",
	Needs:  []Need{Etcd},
	Open: func(_ context.Context, s Servers, _ string) (Lock, error) {
		return openEtcd(s, "lease-equality", func(_ context.Context, m mutex) (Held, error) { return leased{m}, nil })
	},
	Prepare: func(ctx context.Context, pool *pgxpool.Pool) error {
		_, err := pool.Exec(ctx, "create table if not exists control_lease (resource text primary key, lease bigint not null)")
		return err
	},
}

// leased is a lock whose lease is compared with the one that wrote last.
type leased struct{ mutex }

// Token is the lease.
func (h leased) Token() int64 { return int64(h.session.Lease()) }

func (h leased) Check(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, "insert into control_lease (resource, lease) values ($1, $2) on conflict do nothing", h.resource, h.Token()); err != nil {
		return err
	}
	var last int64
	if err := tx.QueryRow(ctx, "select lease from control_lease where resource = $1 for update", h.resource).Scan(&last); err != nil {
		return err
	}
	if last == h.Token() {
		return nil
	}
	lease, err := h.session.Client().TimeToLive(ctx, clientv3.LeaseID(last))
	if err != nil {
		return err
	}
	if lease.TTL > 0 {
		return fmt.Errorf("%w: lease %x wrote last, and still exists", ErrLockLost, last)
	}
	_, err = tx.Exec(ctx, "update control_lease set lease = $2 where resource = $1", h.resource, h.Token())
	return err
}
