package doctor

import (
	"context"
	"errors"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd"
	"github.com/fencekit/fencekit/fence/etcd/inspect"
)

// etcdName is the name of etcd in findings.
const etcdName = "etcd"

// etcdServer is the etcd under examination, and what the checks have learned of it.
type etcdServer struct {
	Etcd
	limits    Limits
	inspector *inspect.Inspector
	locker    *etcd.Locker
	statuses  map[string]*clientv3.StatusResponse // by address, of the members that answered
	readable  bool                                // keys can be read
	silent    bool                                // no majority answers
	noEpoch   bool                                // the epoch key holds no epoch
	examined  chan struct{}                       // closed when the checks of etcd alone were made
	proxied   bool                                // a proxy answers, also for members
}

func newEtcdServer(e Etcd, limits Limits) *etcdServer {
	return &etcdServer{Etcd: e, limits: limits, statuses: map[string]*clientv3.StatusResponse{}, examined: make(chan struct{})}
}

func (l *etcdServer) config() *etcd.Config {
	return &etcd.Config{Prefix: l.Prefix}
}

func (l *etcdServer) close() {
	if l.locker != nil {
		ctx, cancel := context.WithTimeout(context.Background(), l.limits.Request)
		defer cancel()
		_ = l.locker.Close(ctx) // it has no session
	}
}

// within bounds one request.
func (l *etcdServer) within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, l.limits.Request)
}

// found is a finding whose commands name the endpoints.
func (l *etcdServer) found(k Kind, seen string, words ...string) Finding {
	return k.found(etcdName, seen, append(words, "endpoints", ShellWord(strings.Join(l.Client.Endpoints(), ",")), "prefix", l.Prefix)...)
}

// checkGrants asks whether etcd would grant a lock.
func checkGrants(ctx context.Context, s *target) (_ []Finding, err error) {
	l := s.etcd
	if l.Client == nil {
		return []Finding{etcdUnreachable.found(etcdName, l.Err.Error())}, nil
	}
	if l.inspector, err = inspect.New(l.Client, l.Prefix, l.limits.Request); err != nil {
		return nil, err
	}
	if l.locker, err = etcd.NewLocker(l.Client, l.config()); err != nil {
		return nil, err
	}
	err = l.locker.Check(ctx)
	var away *fence.UnavailableError
	var reason fence.UnavailableReason
	if errors.As(err, &away) {
		reason = away.Reason
	}
	l.noEpoch = reason == fence.InvalidEpoch
	l.proxied = reason == fence.Proxied
	l.readable = err == nil || l.noEpoch || l.proxied || reason == fence.NoSpace
	l.silent = reason == fence.Unreachable
	switch {
	case err == nil || reason == fence.NoSpace: // checkAlarms has its fix
		return nil, nil
	case reason == fence.Denied:
		return []Finding{l.found(etcdDenied, away.Err.Error())}, nil
	case reason == fence.Limited:
		return []Finding{l.found(etcdLimits, away.Err.Error())}, nil
	case l.proxied:
		return []Finding{l.found(etcdProxied, away.Err.Error())}, nil
	case l.noEpoch:
		return []Finding{l.found(epochKeyInvalid, away.Err.Error(), "reason", "'epoch key was mistyped'")}, nil
	case l.silent:
		return []Finding{etcdUnreachable.found(etcdName, away.Err.Error())}, nil
	}
	return nil, err
}
