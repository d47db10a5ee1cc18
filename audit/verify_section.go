package audit

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/fencekit/fencekit/internal/glob"
	"github.com/fencekit/fencekit/internal/record"
)

// section verifies one export. It takes resources, with what is sought in their histories, until
// their entries come.
type section struct {
	*verification
	begin  record.Begin
	newest bool
	names  map[string]bool // of fences
	last   int64           // the number of the last resource

	subjects   map[int32]*subject
	numbers    map[string]int32
	rejections map[int32][]record.Rejection
	writes     map[int32][]keptWrite
	walk       *walk // nil before their first entry
}

func newSection(run *verification, begin record.Begin, newest bool) *section {
	s := &section{begin: begin, newest: newest, names: map[string]bool{}, last: math.MinInt64}
	s.verification = &verification{findings: run.findings, unexplained: run.unexplained, counts: run.counts, at: begin.At, ends: run.ends, matches: run.matches, all: run.all, prefix: run.prefix}
	if newest && !s.ofPrune() {
		s.known = run.known
	}
	s.next()
	return s
}

func (s *section) ofPrune() bool { return s.begin.Of == record.OfPrune }

// next begins with other resources.
func (s *section) next() {
	s.subjects, s.numbers, s.walk = map[int32]*subject{}, map[string]int32{}, nil
	s.rejections, s.writes = map[int32][]record.Rejection{}, map[int32][]keptWrite{}
}

// line reports whether it could do something with a line.
func (s *section) line(l *record.Line) bool {
	if l.Entry != nil {
		if s.walk == nil {
			s.beginEntries()
		}
		s.counts.entries.Add(1)
		_ = s.walk.next(l.Entry) // it never fails
		return true
	}
	if s.walk != nil && *l != (record.Line{}) {
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
	if !s.ofPrune() {
		if int64(r.Number) <= s.last || r.Name != "" && s.names[r.Name] || r.Fence != nil && (r.Fence.Number != r.Number || r.Fence.Name != r.Name) {
			return false
		}
		s.last, s.names[r.Name] = int64(r.Number), true
	}
	if !s.matches(r.Name) {
		return true
	}
	s.see(r.Name)
	s.numbers[r.Name] = r.Number
	s.subjects[r.Number] = &subject{verification: s.verification, number: r.Number, name: r.Name, fence: r.Fence, checkpoint: r.Checkpoint, held: r.Hold, partial: s.ofPrune(), to: r.To}
	return true
}

func (s *section) rejection(r *record.Rejection) {
	if number, ok := s.numbers[r.Resource]; ok {
		s.rejections[number] = append(s.rejections[number], *r)
	} else if s.matches(r.Resource) {
		s.settleStray(r)
	}
}

func (s *section) operation(o *record.Operation) {
	if s.subjects[o.Resource] == nil {
		if !s.all {
			return
		}
		s.subjects[o.Resource] = &subject{verification: s.verification, number: o.Resource}
	}
	s.writes[o.Resource] = append(s.writes[o.Resource], keptWrite{o.Tx, o.At})
}

func (s *section) beginEntries() {
	for number, subject := range s.subjects {
		subject.sought = newSought(s.rejections[number], s.writes[number])
	}
	byNumber := func(a, b *subject) int { return cmp.Compare(a.number, b.number) }
	s.walk = &walk{run: s.verification, orphans: s.all, subjects: slices.SortedFunc(maps.Values(s.subjects), byNumber)}
}

func (s *section) closeResources() {
	if s.walk == nil {
		s.beginEntries()
	}
	s.walk.upTo(math.MaxInt64)
	s.next()
}

// forgiveLast is called if the export was interrupted: its last resource may lack entries.
func (s *section) forgiveLast() {
	for _, subject := range s.subjects {
		subject.to = 0
	}
}

// close verifies what is about the whole export.
func (s *section) close() {
	s.closeResources()
	if s.ofPrune() {
		return
	}
	s.verifyMarks()
	exported := glob.Matcher(s.begin.Resources)
	s.verifyUnseen(exported)
}
