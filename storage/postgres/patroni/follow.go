package patroni

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// follow asks etcd three times within MaxAge, so that one question may fail, and at once when the leader key changes.
func (p *Primary) follow(ctx context.Context) {
	defer close(p.ended)
	for first := true; ctx.Err() == nil; first = false {
		next, cancel := context.WithTimeout(ctx, p.cfg.MaxAge/3)
		known, revision, err := p.read(next)
		switch {
		case err == nil:
			p.learn(known)
		case known.Leader == p.known.Leader:
			known = p.known // counts until it is too old
			known.why = err.Error()
			p.learn(known)
		default:
			p.learn(knowledge{why: err.Error()})
		}
		if first {
			close(p.asked)
		}
		if p.changed(next, revision) {
			p.learn(knowledge{why: "the leader key has just changed"})
		}
		cancel()
	}
	p.learn(knowledge{why: "the watch was closed; close the pool first"})
}

// read asks for the leader key and the members in one transaction, which etcd answers with its present state.
func (p *Primary) read(ctx context.Context) (known knowledge, revision int64, err error) {
	known.at = time.Now()
	resp, err := p.client.Txn(ctx).Then(clientv3.OpGet(p.base+"/leader"), clientv3.OpGet(p.base+"/members/", clientv3.WithPrefix())).Commit()
	if err != nil {
		return p.known, 0, fmt.Errorf("etcd could not be asked: %w", err)
	}
	revision = resp.Header.Revision
	keys := resp.Responses[0].GetResponseRange().Kvs
	if len(keys) == 0 {
		return known, revision, fmt.Errorf("there is no key %s/leader: either nobody is elected now, or patroni.Config has another Namespace or Scope than Patroni, or the client another etcd", p.base)
	}
	known.Leader = Leader{string(keys[0].Value), keys[0].ModRevision}
	switch {
	case known.Generation < p.newest:
		return known, revision, fmt.Errorf("etcd names %s, elected at revision %d, after a leader elected at %d: it went back to an older state; find out which server is the primary, and then restart this process", known.Name, known.Generation, p.newest)
	case known.Generation > p.newest:
		p.cfg.Logger.Info("patroni: a primary was elected", "name", known.Name, "generation", known.Generation)
		p.newest = known.Generation
	}
	known.servers, err = p.serversOf(ctx, known.Name, resp.Responses[1].GetResponseRange().Kvs)
	return known, revision, err
}

func (p *Primary) serversOf(ctx context.Context, name string, members []*mvccpb.KeyValue) (servers []string, err error) {
	if p.cfg.Member != nil {
		return []string{name}, nil
	}
	var member struct {
		URL string `json:"conn_url"`
	}
	key := p.base + "/members/" + name
	for _, kv := range members {
		if string(kv.Key) == key {
			err = json.Unmarshal(kv.Value, &member)
		}
	}
	at, parseErr := url.Parse(member.URL)
	if err = errors.Join(err, parseErr); err != nil || at.Hostname() == "" {
		return nil, fmt.Errorf("the key %s of the leader has no conn_url such as postgres://10.0.0.1:5432/postgres (%v)", key, err)
	}
	addresses, err := net.DefaultResolver.LookupNetIP(ctx, "ip", at.Hostname())
	for _, a := range addresses {
		servers = append(servers, net.JoinHostPort(a.Unmap().String(), cmp.Or(at.Port(), "5432")))
	}
	return servers, err
}

// changed waits for a change of the leader key after this revision until ctx ends. Without a watch it only waits.
func (p *Primary) changed(ctx context.Context, after int64) bool {
	if after > 0 {
		for resp := range p.client.Watch(clientv3.WithRequireLeader(ctx), p.base+"/leader", clientv3.WithRev(after+1)) {
			if len(resp.Events) > 0 {
				return true
			}
		}
	}
	<-ctx.Done()
	return false
}

func (p *Primary) learn(known knowledge) {
	p.mu.Lock()
	before := p.known
	p.known = known
	p.mu.Unlock()
	if known.why != "" && known.why != before.why {
		p.cfg.Logger.Warn("patroni: it isn't known which server is the elected primary", "reason", known.why, "before", before.Name)
	}
}
