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
func checkTTL(ctx context.Context, s *target) ([]Finding, error) {
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

// keysPerPage is how many keys a request reads, and maxStrays how many without a lease are reported.
const (
	keysPerPage = 10_000
	maxStrays   = 100
)

// checkLockKeys looks for lock keys that never expire.
func checkLockKeys(ctx context.Context, s *target) ([]Finding, error) {
	return s.etcd.strays(ctx, "/locks/", lockWithoutLease)
}

// checkVoidKeys looks for void keys that never expire. A session has at most one, under its lease.
func checkVoidKeys(ctx context.Context, s *target) ([]Finding, error) {
	return s.etcd.strays(ctx, "/void/", voidWithoutLease)
}

// strays finds keys without a lease, within Limits.Scan. An answer with keys only wouldn't tell their leases.
func (l *etcdServer) strays(ctx context.Context, below string, k Kind) (found []Finding, err error) {
	from, end := l.Prefix+below, clientv3.GetPrefixRangeEnd(l.Prefix+below)
	deadline := time.Now().Add(l.limits.Scan)
	for seen := 0; ; {
		answer, err := l.page(ctx, from, end)
		if err != nil {
			return found, fmt.Errorf("after %d keys: %w", seen, err)
		}
		for _, kv := range answer.Kvs {
			if kv.Lease == 0 && len(found) < maxStrays {
				found = append(found, l.found(k, fmt.Sprintf("key %q has no lease", kv.Key), "key", ShellWord(string(kv.Key))))
			}
		}
		if !answer.More {
			return found, nil
		}
		if seen += len(answer.Kvs); time.Now().After(deadline) {
			return found, fmt.Errorf("looked at %d keys in %v, and there are more", seen, l.limits.Scan)
		}
		from = string(answer.Kvs[len(answer.Kvs)-1].Key) + "\x00"
	}
}

func (l *etcdServer) page(ctx context.Context, from, end string) (*clientv3.GetResponse, error) {
	request, cancel := l.within(ctx)
	defer cancel()
	return l.Client.Get(request, from, clientv3.WithRange(end), clientv3.WithLimit(keysPerPage))
}
