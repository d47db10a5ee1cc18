package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd"
	"github.com/fencekit/fencekit/fence/etcd/inspect"
)

func checkGrants(ctx context.Context, s *target) (_ []Finding, err error) {
	l := s.etcd
	if l.Client == nil {
		return []Finding{l.found("etcd-unreachable", facts{"cause": l.Err})}, nil
	}
	if l.inspector, err = inspect.New(l.Client, l.Prefix, l.limits.Request); err != nil {
		return nil, err
	}
	if l.locker, err = etcd.New(l.Client, &etcd.Config{Prefix: l.Prefix}); err != nil {
		return nil, err
	}
	err = l.locker.Check(ctx)
	var away *fence.UnavailableError
	if err != nil && !errors.As(err, &away) {
		return nil, err
	}
	if away == nil {
		l.readable = true
		return nil, nil
	}
	id := map[fence.UnavailableReason]string{
		fence.Denied: "etcd-denied", fence.Limited: "etcd-limits-low", fence.Proxied: "etcd-proxied",
		fence.InvalidEpoch: "epoch-key-invalid", fence.Unreachable: "etcd-unreachable", fence.Imitated: "etcd-imitated",
	}[away.Reason]
	l.noEpoch, l.silent = away.Reason == fence.InvalidEpoch, away.Reason == fence.Unreachable
	l.readable = l.noEpoch || away.Reason == fence.NoSpace || away.Reason == fence.Proxied
	switch {
	case id != "":
		return []Finding{l.found(id, facts{"cause": away.Err})}, nil
	case away.Reason == fence.NoSpace:
		now, err := l.inspector.Epoch(ctx)
		return []Finding{l.found("etcd-full", facts{"cause": away.Err, "revision": now.Revision})}, err
	}
	return nil, err
}

// checkAuth reports an etcd that any client on the network may write to.
func checkAuth(ctx context.Context, s *target) ([]Finding, error) {
	l := s.etcd
	if l.Client == nil || l.silent || l.CertificateAuth {
		return nil, nil
	}
	request, cancel := l.within(ctx)
	defer cancel()
	status, err := l.Client.AuthStatus(request)
	switch {
	case errors.Is(err, rpctypes.ErrUserEmpty) || errors.Is(err, rpctypes.ErrPermissionDenied):
		return nil, nil // it is on
	case err != nil || status.Enabled:
		return nil, err
	}
	addresses := slices.Clone(l.Client.Endpoints())
	if members, err := l.Client.MemberList(request); err == nil {
		for _, m := range members.Members {
			addresses = append(addresses, m.ClientURLs...)
		}
	}
	for _, address := range addresses {
		if !isLoopback(address) {
			return []Finding{l.found("etcd-auth-off", facts{"endpoint": address})}, nil
		}
	}
	return nil, nil
}

func isLoopback(endpoint string) bool {
	host := endpoint
	if u, err := url.Parse(endpoint); err == nil && u.Host != "" {
		host = u.Host
	}
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

// keys looks for keys that never expire, and for locks of an epoch that is over.
func keys(below, endless string) func(context.Context, *target) ([]Finding, error) {
	return func(ctx context.Context, s *target) ([]Finding, error) {
		now, err := s.etcd.inspector.Epoch(ctx) // before the keys, which are older then; 0 if it is no epoch
		if err != nil && !s.etcd.noEpoch {
			return nil, err
		}
		return s.etcd.strays(ctx, s.etcd.Prefix+below, func(kv *mvccpb.KeyValue) (string, facts) {
			switch a, isLock := s.etcd.inspector.Acquisition(kv); {
			case kv.Lease == 0:
				return endless, facts{}
			case isLock && a.Grant.Holder != "" && a.Grant.Epoch < now.Number:
				return olderEpoch, facts{"resource": a.Grant.Resource, "holder": a.Grant.Holder, "token": a.Grant.Token, "epoch": a.Grant.Epoch, "now": now.Number}
			}
			return "", nil
		})
	}
}

// keysPerPage is how many keys a request reads, and maxStrays how many of them are reported.
const (
	keysPerPage = 10_000
	maxStrays   = 100
)

// strays finds the keys for which of returns a finding's id, within Limits.Scan. An answer with keys only wouldn't
// tell their leases.
func (l *etcdServer) strays(ctx context.Context, from string, of func(*mvccpb.KeyValue) (id string, f facts)) (found []Finding, err error) {
	end, deadline := clientv3.GetPrefixRangeEnd(from), time.Now().Add(l.limits.Scan)
	for seen := 0; ; {
		answer, err := l.page(ctx, from, end)
		if err != nil {
			return found, fmt.Errorf("after %d keys: %w", seen, err)
		}
		for _, kv := range answer.Kvs {
			if id, f := of(kv); id != "" && len(found) < maxStrays {
				f["key"] = string(kv.Key)
				found = append(found, l.found(id, f))
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
