package doctor

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
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
			found = append(found, l.found("etcd-member-silent", facts{"endpoint": endpoint, "limit": l.limits.Request, "cause": err}))
		}
	}
	return slices.Concat(found, l.unseen(ctx, failures), l.judgeStatuses()), nil
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
func (l *etcdServer) unseen(ctx context.Context, failures map[string]error) (found []Finding) {
	// Without a leader, as without a majority, most requests wait until their time is up. A proxy lists itself.
	if l.proxied || !l.some(func(status *clientv3.StatusResponse) bool { return status.Leader != 0 }) {
		return nil
	}
	request, cancel := l.within(ctx)
	defer cancel()
	answer, err := l.Client.MemberList(request)
	if err != nil {
		return nil // without a majority; checkGrants says so
	}
	var away []*pb.Member
	for _, m := range answer.Members {
		seen := func(status *clientv3.StatusResponse) bool { return status.Header.MemberId == m.ID }
		if l.some(seen) {
			continue
		}
		l.ask(ctx, slices.DeleteFunc(slices.Clone(m.ClientURLs), func(address string) bool { return failures[address] != nil }))
		if !l.some(seen) {
			away = append(away, m)
		}
	}
	for _, m := range away[min(len(failures), len(away)):] {
		found = append(found, l.found("etcd-member-unseen", facts{"name": m.Name, "addresses": m.ClientURLs}))
	}
	return found
}

func (l *etcdServer) some(like func(*clientv3.StatusResponse) bool) bool {
	return slices.ContainsFunc(slices.Collect(maps.Values(l.statuses)), like)
}

const lowSpace = 0.8

func (l *etcdServer) judgeStatuses() (found []Finding) {
	var full, corrupt []string
	var revision int64
	for _, address := range slices.Sorted(maps.Keys(l.statuses)) {
		status := l.statuses[address]
		alarm := func(name string) bool {
			return slices.ContainsFunc(status.Errors, func(text string) bool { return strings.Contains(text, name) })
		}
		revision = max(revision, status.Header.Revision)
		if isOldEtcd(status.Version) {
			found = append(found, l.found("etcd-version", facts{"endpoint": address, "version": status.Version}))
		}
		if alarm("CORRUPT") {
			corrupt = append(corrupt, address)
		}
		// Servers before 3.6 don't report the quota.
		used := float64(status.DbSize) / float64(max(status.DbSizeQuota, 1))
		switch size, quota := bytes(status.DbSize), bytes(status.DbSizeQuota); {
		case alarm("NOSPACE"):
			full = append(full, fmt.Sprintf("%s (%s of %s)", address, size, quota))
		case status.DbSizeQuota > 0 && used >= lowSpace:
			found = append(found, l.found("etcd-space-low", facts{"endpoint": address, "size": size, "used": bytes(status.DbSizeInUse), "quota": quota, "revision": status.Header.Revision}))
		}
	}
	if len(full) > 0 {
		found = append(found, l.found("etcd-full", facts{"members": strings.Join(full, ", "), "revision": revision}))
	}
	if len(corrupt) > 0 {
		found = append(found, l.found("etcd-corrupt", facts{"members": strings.Join(corrupt, ", ")}))
	}
	return found
}

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
