package doctor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// checkTTL asks for a lease, and revokes it. Where that fails the lease ends by itself.
func checkTTL(ctx context.Context, s *scene) ([]Finding, error) {
	l := s.etcd
	request, cancel := l.within(ctx)
	defer cancel()
	asked := int64(l.TTL / time.Second)
	lease, err := l.Client.Grant(request, asked)
	if errors.Is(err, rpctypes.ErrNoSpace) {
		return nil, nil // checkAlarms says so
	}
	if err != nil {
		return nil, err
	}
	if _, err := l.Client.Revoke(request, lease.ID); err != nil {
		return nil, fmt.Errorf("the lease that was asked for is not revoked, and ends in %d s: %w", lease.TTL, err)
	}
	if lease.TTL <= asked {
		return nil, nil
	}
	granted := time.Duration(lease.TTL) * time.Second
	return []Finding{l.found(etcdTTLRaised, fmt.Sprintf("asked for %v, granted %v", l.TTL, granted), "granted", granted.String())}, nil
}

// maxKeys is how many keys are looked at, and maxStrays how many without a lease are reported.
const (
	maxKeys   = 10_000
	maxStrays = 100
)

// checkLockKeys looks for lock keys that never expire.
func checkLockKeys(ctx context.Context, s *scene) ([]Finding, error) {
	return s.etcd.strays(ctx, "/locks/", lockWithoutLease)
}

// checkVoidKeys looks for void keys that never expire. A session has at most one, under its lease.
func checkVoidKeys(ctx context.Context, s *scene) ([]Finding, error) {
	return s.etcd.strays(ctx, "/void/", voidWithoutLease)
}

// strays finds keys without a lease. An answer with keys only wouldn't tell their leases.
func (l *lockService) strays(ctx context.Context, below string, k Kind) (found []Finding, err error) {
	request, cancel := l.within(ctx)
	defer cancel()
	answer, err := l.Client.Get(request, l.Prefix+below, clientv3.WithPrefix(), clientv3.WithLimit(maxKeys))
	if err != nil {
		return nil, err
	}
	for _, kv := range answer.Kvs {
		if kv.Lease == 0 && len(found) < maxStrays {
			found = append(found, l.found(k, fmt.Sprintf("key %q has no lease", kv.Key), "key", shellWord(string(kv.Key))))
		}
	}
	if answer.More {
		err = fmt.Errorf("only the first %d of %d keys were looked at", maxKeys, answer.Count)
	}
	return found, err
}
