package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd"
)

// etcdName is the name of etcd in findings.
const etcdName = "etcd"

// etcdServer is the etcd under examination, and what the checks have learned of it.
type etcdServer struct {
	Etcd
	limits    Limits
	inspector *etcd.Inspector
	locker    *etcd.Locker
	statuses  map[string]*clientv3.StatusResponse // by address, of the members that answered
	readable  bool                                // keys can be read
	silent    bool                                // no majority answers
	noEpoch   bool                                // the epoch key holds no epoch
}

func newEtcdServer(e Etcd, limits Limits) *etcdServer {
	return &etcdServer{Etcd: e, limits: limits, statuses: map[string]*clientv3.StatusResponse{}}
}

func (l *etcdServer) config() *etcd.Config {
	return &etcd.Config{Prefix: l.Prefix, RequestTimeout: l.limits.Request}
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

// checkMembers asks every member for its status: at the endpoints, and for members that are at none
// of these, at the addresses that they advertise.
func checkMembers(ctx context.Context, s *scene) ([]Finding, error) {
	l := s.etcd
	if l.Client == nil {
		return []Finding{etcdUnreachable.found(etcdName, l.Err.Error())}, nil
	}
	failures := l.ask(ctx, l.Client.Endpoints())
	if len(l.statuses) == 0 {
		return nil, nil // checkGrants says so
	}
	var found []Finding
	for _, endpoint := range l.Client.Endpoints() {
		if err, silent := failures[endpoint]; silent {
			found = append(found, etcdMemberSilent.found(etcdName, fmt.Sprintf("no answer from %s within %v: %v", endpoint, l.limits.Request, err), "endpoint", endpoint))
		}
	}
	unseen, err := l.unseen(ctx, len(failures))
	return slices.Concat(found, unseen, l.checkVersions(), l.checkSpace()), err
}

// ask asks at addresses, all at once, and returns the failures.
func (l *etcdServer) ask(ctx context.Context, addresses []string) map[string]error {
	ctx, cancel := l.within(ctx)
	defer cancel()
	failures := map[string]error{}
	var mu sync.Mutex
	var asking sync.WaitGroup
	for _, address := range addresses {
		asking.Go(func() {
			status, err := l.Client.Status(ctx, address)
			if err != nil {
				err = cmp.Or(dialError(address), err)
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failures[address] = err
				return
			}
			l.statuses[address] = status
		})
	}
	asking.Wait()
	return failures
}

// dialTime bounds the attempt to connect to a member that gave no answer.
const dialTime = time.Second

// dialError returns why no connection can be made to an address. gRPC tries again until its context
// ends, and then says that alone. A connection that can be made has no error.
func dialError(address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Port() == "" {
		return nil
	}
	conn, err := net.DialTimeout("tcp", u.Host, dialTime)
	if err != nil {
		return err
	}
	return conn.Close()
}

// unseen asks the members that are at no endpoint. As many of them as endpoints that were silent
// may be at those.
func (l *etcdServer) unseen(ctx context.Context, silent int) ([]Finding, error) {
	if !l.hasLeader() {
		return nil, nil // checkGrants says so
	}
	request, cancel := l.within(ctx)
	defer cancel()
	answer, err := l.Client.MemberList(request)
	if err != nil {
		return nil, nil // without a majority; checkGrants says so
	}
	var away []*pb.Member
	for _, m := range answer.Members {
		if l.seen(m.ID) {
			continue
		}
		l.ask(ctx, m.ClientURLs)
		if !l.seen(m.ID) {
			away = append(away, m)
		}
	}
	var found []Finding
	for _, m := range away[min(silent, len(away)):] {
		found = append(found, etcdMemberUnseen.found(etcdName, fmt.Sprintf("member %s (%s) gives no answer", m.Name, joined(m.ClientURLs))))
	}
	return found, nil
}

// hasLeader reports whether a member knows of a leader. Without one, as without a majority, most
// requests wait until their time is up.
func (l *etcdServer) hasLeader() bool {
	for _, status := range l.statuses {
		if status.Leader != 0 {
			return true
		}
	}
	return false
}

func (l *etcdServer) seen(id uint64) bool {
	for _, status := range l.statuses {
		if status.Header.MemberId == id {
			return true
		}
	}
	return false
}

// addresses are those that answered, in order.
func (l *etcdServer) addresses() []string {
	var all []string
	for address := range l.statuses {
		all = append(all, address)
	}
	slices.Sort(all)
	return all
}

func (l *etcdServer) checkVersions() (found []Finding) {
	for _, address := range l.addresses() {
		if version := l.statuses[address].Version; isOldEtcd(version) {
			found = append(found, etcdVersion.found(etcdName, fmt.Sprintf("%s runs etcd %s", address, version)))
		}
	}
	return found
}

// isOldEtcd reports whether a version lacks the repairs of leases. What isn't three numbers is not
// judged.
func isOldEtcd(version string) bool {
	var major, minor, patch int
	if n, _ := fmt.Sscanf(version, "%d.%d.%d", &major, &minor, &patch); n < 3 {
		return false
	}
	switch {
	case major != 3 || minor > 6:
		return major < 3
	case minor == 6:
		return patch < 5
	case minor == 5:
		return patch < 23
	}
	return true
}

// The part of the quota from which on a member's space is reported as low.
const lowSpace = 0.8

func (l *etcdServer) checkSpace() (found []Finding) {
	for _, address := range l.addresses() {
		status := l.statuses[address]
		// Servers before 3.6 don't report the quota.
		if used := float64(status.DbSize) / float64(max(status.DbSizeQuota, 1)); status.DbSizeQuota == 0 || used < lowSpace || isFull(status) {
			continue
		}
		seen := fmt.Sprintf("%s: database of %s, of which %s in use; quota %s", address, bytes(status.DbSize), bytes(status.DbSizeInUse), bytes(status.DbSizeQuota))
		found = append(found, l.found(etcdSpaceLow, seen, "revision", fmt.Sprint(status.Header.Revision)))
	}
	return found
}

func isFull(status *clientv3.StatusResponse) bool {
	return slices.ContainsFunc(status.Errors, func(text string) bool { return strings.Contains(text, "NOSPACE") })
}

// found is a finding whose commands name the endpoints.
func (l *etcdServer) found(k Kind, seen string, words ...string) Finding {
	return k.found(etcdName, seen, append(words, "endpoints", ShellWord(strings.Join(l.Client.Endpoints(), ",")), "prefix", l.Prefix)...)
}

// checkGrants asks whether etcd would grant a lock.
func checkGrants(ctx context.Context, s *scene) (found []Finding, err error) {
	l := s.etcd
	if l.Client == nil {
		return nil, nil
	}
	if l.inspector, err = etcd.NewInspector(l.Client, l.config()); err != nil {
		return nil, err
	}
	if l.locker, err = etcd.NewLocker(l.Client, l.config()); err != nil {
		return nil, err
	}
	err = l.locker.Check(ctx)
	away := (*fence.UnavailableError)(nil)
	errors.As(err, &away)
	l.noEpoch = away != nil && away.Reason == fence.InvalidEpoch
	l.readable = err == nil || l.noEpoch || away != nil && away.Reason == fence.NoSpace
	switch {
	case away == nil || away.Reason == fence.NoSpace: // checkAlarms has its fix
		if l.readable {
			err = nil
		}
		return nil, err
	case away.Reason == fence.Denied:
		return []Finding{l.found(etcdDenied, away.Err.Error())}, nil
	case away.Reason == fence.InvalidEpoch:
		return []Finding{l.found(epochKeyInvalid, away.Err.Error(), "reason", "'epoch key was mistyped'")}, nil
	case away.Reason == fence.Unreachable:
		l.silent = true
		return []Finding{etcdUnreachable.found(etcdName, away.Err.Error())}, nil
	}
	return nil, err
}

func checkAlarms(ctx context.Context, s *scene) ([]Finding, error) {
	l := s.etcd
	var found []Finding
	var full, corrupt []string
	var revision int64
	for _, address := range l.addresses() {
		status := l.statuses[address]
		revision = max(revision, status.Header.Revision)
		if isFull(status) {
			full = append(full, fmt.Sprintf("%s (%s of %s)", address, bytes(status.DbSize), bytes(status.DbSizeQuota)))
		}
		if slices.ContainsFunc(status.Errors, func(text string) bool { return strings.Contains(text, "CORRUPT") }) {
			corrupt = append(corrupt, address)
		}
	}
	if len(full) > 0 {
		found = append(found, l.found(etcdFull, "alarm NOSPACE at "+joined(full), "revision", fmt.Sprint(revision)))
	}
	if len(corrupt) > 0 {
		found = append(found, l.found(etcdCorrupt, "alarm CORRUPT at "+joined(corrupt)))
	}
	return found, nil
}

// bytes formats a size.
func bytes(n int64) string {
	for _, unit := range []struct {
		size int64
		name string
	}{{1e9, "GB"}, {1e6, "MB"}, {1e3, "kB"}} {
		if n >= unit.size {
			return fmt.Sprintf("%.3g %s", float64(n)/float64(unit.size), unit.name)
		}
	}
	return fmt.Sprintf("%d bytes", n)
}
