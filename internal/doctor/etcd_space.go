package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// lowSpace is the part of the quota from which on a member's space is reported as low.
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

func checkAlarms(ctx context.Context, s *target) ([]Finding, error) {
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
