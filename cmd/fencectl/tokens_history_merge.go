package main

import (
	"cmp"
	"fmt"
	"iter"
	"strconv"
	"strings"

	"github.com/fencekit/fencekit/audit"
	"github.com/fencekit/fencekit/internal/cli"
)

// historyEnd is a cursor in the merged rows: the position of the last entry and the number of the
// last rejection of a resource. Its text form is ENTRY.REJECTION@RESOURCE.
type historyEnd struct {
	resource         string
	entry, rejection int64
}

func (e historyEnd) String() string { return fmt.Sprintf("%d.%d@%s", e.entry, e.rejection, e.resource) }

func parseHistoryEnd(text string) (e historyEnd, err error) {
	numbers, resource, found := strings.Cut(text, "@")
	entry, rejection, dotted := strings.Cut(numbers, ".")
	e.resource = resource
	var bad, bad2 error
	e.entry, bad = strconv.ParseInt(entry, 10, 64)
	e.rejection, bad2 = strconv.ParseInt(rejection, 10, 64)
	if !found || !dotted || resource == "" || bad != nil || bad2 != nil {
		return e, cli.UsageErrorf("--after is %q, want a cursor that an earlier call printed, such as 118.7@sku/42", text)
	}
	return e, nil
}

// merge merges entries and rejections. A rejection comes before the first entry of its resource
// that is later than its first time. Both are in the order of the resources.
func merge(entries iter.Seq2[audit.Entry, error], rejections iter.Seq2[audit.Rejection, error], from historyEnd) iter.Seq2[historyRow, error] {
	return func(yield func(historyRow, error) bool) {
		m := merger{end: from, yield: yield}
		next, stop := iter.Pull2(rejections)
		defer stop()
		r, err, found := next()
		for e, failed := range entries {
			for found && err == nil && failed == nil && before(r, e) {
				if !m.rejection(r) {
					return
				}
				r, err, found = next()
			}
			if failed != nil || err != nil {
				yield(historyRow{}, cmp.Or(failed, err))
				return
			}
			if !m.entry(e) {
				return
			}
		}
		for ; found; r, err, found = next() {
			if err != nil {
				yield(historyRow{}, err)
				return
			}
			if !m.rejection(r) {
				return
			}
		}
	}
}

func before(r audit.Rejection, e audit.Entry) bool {
	if r.Grant.Resource != e.Grant.Resource {
		return r.Grant.Resource < e.Grant.Resource
	}
	return r.First.Before(e.At)
}

// merger yields rows with their cursors.
type merger struct {
	end   historyEnd
	yield func(historyRow, error) bool
}

func (m *merger) at(resource string) {
	if resource != m.end.resource {
		m.end = historyEnd{resource: resource}
	}
}

func (m *merger) entry(e audit.Entry) bool {
	m.at(e.Grant.Resource)
	m.end.entry = e.Seq
	return m.yield(entryRow(e, m.end), nil)
}

func (m *merger) rejection(r audit.Rejection) bool {
	m.at(r.Grant.Resource)
	m.end.rejection = r.ID
	return m.yield(rejectionRow(r, m.end), nil)
}
