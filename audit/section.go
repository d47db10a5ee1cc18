package audit

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/fencekit/fencekit/internal/glob"
	"github.com/fencekit/fencekit/internal/record"
)

// section verifies the lines of one state of the history, or of what one prune exported. It collects resources, and
// what their histories have to contain, until their entries come.
type section struct {
	*verification
	begin   record.Begin
	orphans bool            // entries without a resource are verified too
	known   knownHeads      // which this state must contain
	seen    map[string]bool // the resources with known heads that were verified
	names   map[string]bool // of fences, in an export
	last    int64           // the number of the last resource
	setting record.Setting
	highest grant // that has claimed

	chains  map[int32]*chain // that are yet to come
	numbers map[string]int32 // of them, by name
	entries bool             // have begun
	now     *chain           // of the last entry
}

func newSection(run *verification, begin record.Begin, newest bool) *section {
	s := &section{verification: run, begin: begin, orphans: run.options.Resources == "", seen: map[string]bool{}, names: map[string]bool{}, last: math.MinInt64}
	if newest && !s.ofPrune() {
		s.known = run.known
	}
	s.next()
	return s
}

func (s *section) ofPrune() bool { return s.begin.Of == record.OfPrune }

func (s *section) next() {
	s.chains, s.numbers, s.entries = map[int32]*chain{}, map[string]int32{}, false
}

// line reports whether it could do something with a line. It keeps nothing of an entry.
func (s *section) line(l *record.Line) bool {
	if l.Entry != nil {
		s.entry(l.Entry)
		return true
	}
	if s.entries && *l != (record.Line{}) {
		s.closeResources()
	}
	switch {
	case l.Setting != nil:
		s.setting = *l.Setting
	case l.Resource != nil:
		return s.resource(l.Resource)
	case l.Rejection != nil:
		s.rejection(l.Rejection)
	case l.Operation != nil:
		s.operation(l.Operation)
	case l.Hold != nil:
	default:
		return false
	}
	return true
}

func (s *section) resource(r *record.Resource) bool {
	switch {
	case s.ofPrune():
	case r.Fence == nil: // the line of a deleted fence may be behind all others
		if s.chains[r.Number] != nil {
			return false
		}
	case int64(r.Number) <= s.last || s.names[r.Name] || r.Fence.Number != r.Number || r.Fence.Name != r.Name:
		return false
	default:
		if s.last = int64(r.Number); s.names != nil {
			s.names[r.Name] = true
		}
	}
	if !s.orphans && !s.matches(r.Name) {
		return true
	}
	if _, known := s.known[r.Name]; known {
		s.seen[r.Name] = true
	}
	s.numbers[r.Name] = r.Number
	s.chains[r.Number] = newChain(s, *r)
	return true
}

func (s *section) rejection(r *record.Rejection) {
	if number, ok := s.numbers[r.Resource]; ok {
		s.chains[number].expect(*r)
	} else if s.matches(r.Resource) { // it has no fence
		stray := newChain(s, record.Resource{Name: r.Resource})
		stray.expect(*r)
		stray.settle()
	}
}

func (s *section) operation(o *record.Operation) {
	one := s.chains[o.Resource]
	if one == nil && s.orphans {
		one = newChain(s, record.Resource{Number: o.Resource})
		s.chains[o.Resource] = one
	}
	if one != nil {
		s.report.Operations++
		one.writes[o.Tx] = append(one.writes[o.Tx], o.At)
	}
}

func (s *section) entry(e *record.Entry) {
	s.entries = true
	s.report.Entries++
	if s.now == nil || s.now.Number != e.Resource {
		s.closeNow()
		if s.now = s.chains[e.Resource]; s.now == nil && !s.orphans {
			return
		} else if s.now == nil {
			s.now = newChain(s, record.Resource{Number: e.Resource})
		}
		delete(s.chains, e.Resource)
	}
	s.now.next(e)
}

func (s *section) closeNow() {
	if s.now != nil {
		s.now.close()
		s.now = nil
	}
}

// closeResources ends the present history, and those that have no entries.
func (s *section) closeResources() {
	s.closeNow()
	for _, number := range slices.Sorted(maps.Keys(s.chains)) {
		s.chains[number].close()
	}
	s.next()
}

// forgiveLast is called if the export was interrupted: its last resource may lack entries.
func (s *section) forgiveLast() {
	if s.now != nil {
		s.now.To = 0
	}
	for _, one := range s.chains {
		one.To = 0
	}
}

func (s *section) close() {
	s.closeResources()
	if !s.ofPrune() {
		exported := glob.Matcher(s.begin.Resources)
		s.excuseReceipts(ReceiptLeftOut, func(r *ReceiptResult) bool { return !exported(r.Resource) })
		s.verifyMarks()
		s.verifyUnseen()
	}
}

func (s *section) claimed(g grant) {
	if g.compare(s.highest) > 0 {
		s.highest = g
	}
}

// defaultTokenJump is how far above the mark a token may be by default: the owner may have lowered
// that since.
const defaultTokenJump = 1 << 40

// verifyMarks compares the marks of the database with what has claimed. The mark of tokens
// follows coarsely, and 0 turns it off.
func (s *section) verifyMarks() {
	lowest := s.highest.token - max(s.setting.MaxTokenJump, defaultTokenJump)
	switch {
	case max(s.highest.epoch, s.setting.Raised) > s.setting.Epoch:
		s.add(Finding{Kind: FindingLoweredMark, Text: "The database's highest epoch is lower than one that has claimed or that it was raised to: grants of an epoch that is over could come back.",
			Expected: fmt.Sprintf("epoch %d or more", max(s.highest.epoch, s.setting.Raised)), Found: fmt.Sprintf("epoch %d", s.setting.Epoch)})
	case s.highest.epoch == s.setting.Epoch && s.setting.Token > 0 && s.setting.Token < lowest:
		s.add(Finding{Kind: FindingLoweredMark, Text: "The database's mark of tokens is far lower than a token that has claimed: it was set back.",
			Expected: fmt.Sprintf("token %d or more", lowest), Found: fmt.Sprintf("token %d", s.setting.Token)})
	}
}

// retires reports whether a resource is a queue's, whose history goes with it.
func (s *section) retires(name string) bool {
	for queue := range strings.Lines(s.setting.Queues) {
		if strings.HasPrefix(name, strings.TrimSuffix(queue, "\n")+"/") {
			return true
		}
	}
	return false
}

func (s *section) retired(heads []knownHead) {
	for _, h := range heads {
		s.prunedHead(h)
	}
}

func (s *section) verifyUnseen() {
	exported := glob.Matcher(s.begin.Resources)
	for _, name := range slices.Sorted(maps.Keys(s.known)) {
		heads := s.known[name]
		if s.seen[name] || !s.matches(name) {
			continue
		}
		if !exported(name) {
			s.report.LeftOut += int64(len(heads))
			continue
		}
		if s.retires(name) {
			s.retired(heads)
			continue
		}
		for _, h := range heads {
			s.comparedHead(h)
		}
		last := heads[len(heads)-1]
		s.add(Finding{Kind: FindingOlderState, Resource: name, Seq: last.Seq, Text: "The resource was known, and isn't there: the database went back to an older state, or the resource was removed.",
			Expected: "hash " + record.Hash(last.Hash[:]).String(), Found: "none"})
	}
}
