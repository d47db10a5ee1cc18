package model

// textbookVariants are the rows M0 to M11. A row with a plus is the one before
// it with a third process and a fourth grant.
func textbookVariants() []Variant {
	var (
		atBegin  = Textbook{Procs: 2, Grants: 3, Ops: 3, Check: AtBegin, RowLock: true}
		claimed  = atBegin
		atCommit = Textbook{Procs: 2, Grants: 3, Ops: 3, Check: AtCommit}
	)
	claimed.Claim, claimed.ReadOutside = true, true
	row := func(id, text string, want Violation, t Textbook, change func(*Textbook)) Variant {
		change(&t)
		bounds := "2 x 3 x 3"
		if t.Procs == 3 {
			bounds = "3 x 4 x 3"
		}
		return of(id, text, want, bounds, t)
	}
	same := func(*Textbook) {}
	third := func(change func(*Textbook)) func(*Textbook) {
		return func(t *Textbook) {
			t.Procs, t.Grants = 3, 4
			change(t)
		}
	}
	ledger := func(t *Textbook) { t.LostReplies, t.Ledger = true, true }
	bound := func(t *Textbook) { t.Failover, t.BindTimeline = true, true }
	return []Variant{
		row("M0", "no fence", LostUpdate, Textbook{Procs: 2, Grants: 3, Ops: 3}, same),
		row("M1", "check at BEGIN, row lock, read in the transaction", Holds, atBegin, same),
		row("M1+", "M1", Holds, atBegin, third(same)),
		row("M2", "M1, read outside, no claim (N1)", LostUpdate, atBegin, func(t *Textbook) { t.ReadOutside = true }),
		row("M2b", "M2, judged by token order alone (N1)", Holds, atBegin, func(t *Textbook) { t.ReadOutside, t.JudgeTokens = true, true }),
		row("M3", "claim, then M2", Holds, claimed, same),
		row("M3+", "M3", Holds, claimed, third(same)),
		row("M4", "M1 without the row lock", LostUpdate, atBegin, func(t *Textbook) { t.RowLock = false }),
		row("M4b", "M4 with a claim", LostUpdate, atBegin, func(t *Textbook) { t.RowLock, t.Claim = false, true }),
		row("M4c", "M4, judged by token order alone", TokenOrder, atBegin, func(t *Textbook) { t.RowLock, t.JudgeTokens = false, true }),
		row("M5", "check at COMMIT, no claim", LostUpdate, atCommit, same),
		row("M6", "check at COMMIT, claim", Holds, atCommit, func(t *Textbook) { t.Claim = true }),
		row("M7", "M3, replies lost, retried blindly", AppliedTwice, claimed, func(t *Textbook) { t.LostReplies = true }),
		row("M8", "M7 with a ledger of operations", Holds, claimed, ledger),
		row("M8+", "M8", Holds, claimed, third(ledger)),
		row("M9", "M3, failover loses transactions (N6)", LostUpdate, claimed, func(t *Textbook) { t.Failover = true }),
		row("M10", "M9, claim bound to the timeline (N6)", Holds, claimed, bound),
		row("M10+", "M10", Holds, claimed, third(bound)),
		row("M11", "M1, failover", Holds, atBegin, func(t *Textbook) { t.Failover = true }),
	}
}
