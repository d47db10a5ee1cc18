package model

// ReadRule says what a read-only operation compares with the fences before it is answered.
type ReadRule uint8

const (
	// ReadPosition compares token, holder, position, the transaction that took it, and the
	// timeline, when everything has been read. This is the protocol (G13).
	ReadPosition ReadRule = iota
	// ReadNothing compares nothing.
	ReadNothing
	// ReadGrant compares token and holder alone.
	ReadGrant
	// ReadSnapshot compares in the snapshot of the reads.
	ReadSnapshot
	// ReadAnyTimeline compares all but the timeline.
	ReadAnyTimeline
)

// ReadMutation changes one rule of read-only operations. The zero value is the protocol.
type ReadMutation struct {
	Check ReadRule
	// Unsettled reads while a COMMIT of the client's own is in doubt, and answers that from
	// what it has read.
	Unsettled bool
	// Reconnects makes the comparison on another connection than the reads.
	Reconnects bool
	// AnyServer leaves the begin check out, which fails on a standby.
	AnyServer bool
	// AnyTransaction commits whatever transaction is open in the end.
	AnyTransaction bool
}

// readState is that of a read-only operation. What it has read is in the client's parts.
type readState struct {
	Standby bool // it runs on the standby
	Raw     bool // its transaction has ended, and another one has written
	Current bool // its fences were where they should be in the snapshot of its reads
}

// beginRead begins a read-only operation. Under weak isolation each of its reads sees what is
// committed by then. If the begin check rejects it, that is the step of any transaction.
func (m ClaimSeal) beginRead(s state, w worker, do change) {
	if w.Op != 0 || s.Reads >= m.Faults.Reads {
		return
	}
	if m.mayBegin(s, w) {
		do("read-only: begins, reads", 0, func(s *state, w *worker) { m.readFirst(s, w, false) })
	}
	if m.Mutation.Read.AnyServer && s.Standby.Resources[0].Fence.Seq > 0 {
		do("read-only: begins on the standby, reads", 0, func(s *state, w *worker) { m.readFirst(s, w, true) })
	}
}

// mayBegin says whether the begin check passes.
func (m ClaimSeal) mayBegin(s state, w worker) bool {
	for _, n := range w.On.list() {
		if m.elsewhere(&s.DB, n) && !m.Mutation.Read.AnyServer {
			return false
		}
	}
	return true
}

func (m ClaimSeal) readFirst(s *state, w *worker, standby bool) {
	s.Reads++
	w.Stage, w.Reads.Standby = reading, standby
	_, w.Reads.Current = m.unchecked(m.server(s, *w), *w)
	for _, n := range w.On.list() {
		w.Parts[n].Read = m.server(s, *w).Resources[n].Value
	}
}

// server is the database that a read-only operation runs on.
func (m ClaimSeal) server(s *state, w worker) *database {
	if w.Reads.Standby {
		return &s.Standby
	}
	return &s.DB
}

// readAgain reads everything a second time, or ends the transaction and writes in another.
func (m ClaimSeal) readAgain(_ state, _ worker, do change) {
	do("read-only: reads once more", 0, func(s *state, w *worker) { m.readSecond(s, w) })
	if m.Faults.RawReads {
		do("read-only: ends its transaction, and writes in another", 0, func(s *state, w *worker) {
			m.readSecond(s, w)
			w.Reads.Raw = true
		})
	}
}

func (m ClaimSeal) readSecond(s *state, w *worker) {
	w.Stage = checking
	for _, n := range w.On.list() {
		p := &w.Parts[n]
		if p.Reread = m.server(s, *w).Resources[n].Value; m.Mutation.Read.Check == ReadSnapshot {
			p.Reread = p.Read
		}
	}
}

// readCheck ends the transaction, compares, and answers.
func (m ClaimSeal) readCheck(s state, w worker, do change) {
	if m.Faults.LostReplies {
		do("read-only: gets no answer", 0, func(_ *state, w *worker) { w.reset() })
	}
	barred, ok := m.unchecked(m.server(&s, w), w)
	if m.Mutation.Read.Check == ReadSnapshot {
		ok = w.Reads.Current
	}
	switch {
	case w.Reads.Raw && !m.Mutation.Read.AnyTransaction:
		do("read-only: its transaction has ended, nothing commits", 0, func(_ *state, w *worker) { w.reset() })
	case ok:
		do("read check passes, answered", 0, m.readAnswer)
	case w.Reads.Standby:
		do("read-only: the standby can't check", 0, func(_ *state, w *worker) { w.reset() })
	default:
		m.reject(s, w, barred, "read check", do)
	}
}

// unchecked returns the first resource whose fence isn't where the client's claim left it.
func (m ClaimSeal) unchecked(db *database, w worker) (n int8, ok bool) {
	for _, n := range w.On.list() {
		f, p := db.Resources[n].Fence, w.Parts[n]
		at := f == p.Expect
		switch m.Mutation.Read.Check {
		case ReadNothing:
			at = true
		case ReadGrant:
			at = f.grant == p.Expect.grant
		case ReadPosition:
			at = at && !m.elsewhere(db, n) && !w.Reads.Standby // a standby has no timeline of its own
		}
		if !at {
			return n, false
		}
	}
	return 0, true
}

// readAnswer judges what is answered by the data alone. In a Hold user code may rely on it
// later, without reading again.
func (m ClaimSeal) readAnswer(s *state, w *worker) {
	for _, n := range w.On.list() {
		r, p := &s.DB.Resources[n], &w.Parts[n]
		switch {
		case p.Read != p.Reread:
			s.Bad = TornRead
		case p.Read != r.Value:
			s.Bad = StaleRead
		}
		if m.Faults.Held {
			p.Knows, p.Left = true, p.Read
		}
		if m.Faults.Synchronous && !s.WentBack {
			s.Told[n] = max(s.Told[n], p.Read)
		}
		if w.Reads.Raw {
			r.Value = p.Read + 1
			r.Writes++
		}
	}
	w.reset()
}

// readUnsettled is what ReadMutation.Unsettled does about a COMMIT in doubt.
func (m ClaimSeal) readUnsettled(s state, w worker, do change) {
	if _, ok := m.unchecked(&s.DB, w); !m.Mutation.Read.Unsettled || s.Reads >= m.Faults.Reads || !ok {
		return
	}
	do("read-only: reads that tx # is not there", w.Tx, func(s *state, w *worker) {
		s.Reads++
		m.answer(s, w, answeredNotApplied)
	})
}

// readersGoBack ends the connection of a read-only operation, unless it runs on the standby,
// which takes over.
func (m ClaimSeal) readersGoBack(w *worker) {
	switch {
	case w.Stage != reading && w.Stage != checking:
	case w.Reads.Standby:
		w.Reads.Standby = false
	case !m.Mutation.Read.Reconnects:
		w.reset()
	}
}
