package doctor

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/url"
	"slices"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// checkMembers asks every member for its status: at the endpoints, and for members that are at none
// of these, at the addresses that they advertise.
func checkMembers(ctx context.Context, s *target) ([]Finding, error) {
	l := s.etcd
	if l.Client == nil {
		return nil, nil // checkGrants says so
	}
	failures := l.ask(ctx, l.Client.Endpoints())
	if len(l.statuses) == 0 && !l.readable {
		return nil, nil // checkGrants says so
	}
	if len(l.statuses) == 0 {
		return nil, fmt.Errorf("no member says how it is: %w", failures[l.Client.Endpoints()[0]])
	}
	var found []Finding
	for _, endpoint := range l.Client.Endpoints() {
		if err, silent := failures[endpoint]; silent {
			found = append(found, etcdMemberSilent.found(etcdName, fmt.Sprintf("no answer from %s within %v: %v", endpoint, l.limits.Request, err), "endpoint", endpoint))
		}
	}
	unseen, err := l.unseen(ctx, failures)
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

// unseen asks the members that are at no endpoint, but not once more at an address that failed.
// As many of them as endpoints that were silent may be at those.
func (l *etcdServer) unseen(ctx context.Context, failures map[string]error) ([]Finding, error) {
	if !l.hasLeader() || l.proxied { // a proxy lists itself
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
		l.ask(ctx, slices.DeleteFunc(slices.Clone(m.ClientURLs), func(address string) bool { return failures[address] != nil }))
		if !l.seen(m.ID) {
			away = append(away, m)
		}
	}
	var found []Finding
	for _, m := range away[min(len(failures), len(away)):] {
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
