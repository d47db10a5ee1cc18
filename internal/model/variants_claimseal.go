package model

import (
	"fmt"
	"strings"
)

// bounds writes the bounds of m: clients x grants x operations, then faults.
func (m ClaimSeal) bounds() string {
	words := []string{fmt.Sprintf("%d x %d x %d", m.Workers, m.Grants, m.Ops)}
	for _, w := range []struct {
		on   bool
		name string
	}{
		{m.Resources > 1, "two resources"},
		{m.Group > 1 && !m.Across, "groups of two"},
		{m.Across, "groups across them"},
		{m.Rerun, "run again, each alone"},
		{m.ClaimsTogether, "claimed together"},
		{m.Keys == 1, "one key"},
		{m.Keys == 2, "two keys"},
		{m.Keys == 3, "three keys"},
		{m.Faults.LostReplies, "lost replies"},
		{m.Faults.Crashes, "crashes"},
		{m.Faults.LostClaims, "lost claims"},
		{m.Faults.SharedGrants, "shared grants"},
		{m.Faults.ReissuedTokens, "reissued tokens"},
		{m.Faults.Aborts, "aborts"},
		{m.Faults.LockedRows, "locked fences"},
		{m.Faults.Held, "held grants"},
		{m.Faults.Reads == 1, "a read-only operation"},
		{m.Faults.Reads == 2, "two read-only operations"},
		{m.Faults.RawReads, "raw COMMITs in them"},
		{m.Faults.Pruning > 0, "pruning"},
		{m.Faults.Failover, "failover"},
		{m.Faults.Restore, "volume restore"},
		{m.Faults.Synchronous, "synchronous standby"},
		{m.AnyReason, "for any reason"},
		{m.JudgeData, "judged by data and answers"},
	} {
		if w.on {
			words = append(words, w.name)
		}
	}
	return strings.Join(words, ", ")
}

// within is the protocol with one resource and one operation per transaction.
func within(workers, grants, ops int8, f Faults) ClaimSeal {
	return ClaimSeal{Workers: workers, Grants: grants, Ops: ops, Resources: 1, Group: 1, Faults: f}
}

// mutated is m with a mutation.
func (m ClaimSeal) mutated(by Mutation) ClaimSeal {
	m.Mutation = by
	return m
}

// onTwo is m with two resources in each transaction.
func (m ClaimSeal) onTwo() ClaimSeal {
	m.Resources = 2
	return m
}

// grouped is m with two operations in each transaction.
func (m ClaimSeal) grouped() ClaimSeal {
	m.Group = 2
	return m
}

// across is m with two operations, each on a resource of its own, in each transaction.
// Operations that can be grouped so are batches, which may run again.
func (m ClaimSeal) across() ClaimSeal {
	m.Across = true
	return m.onTwo().grouped().rerun()
}

// rerun is m with operations that may run again.
func (m ClaimSeal) rerun() ClaimSeal {
	m.Rerun = true
	return m
}

// together is m with claims of several resources in one transaction.
func (m ClaimSeal) together() ClaimSeal {
	m.ClaimsTogether = true
	return m
}

// once is m with calls of so many keys.
func (m ClaimSeal) once(keys int8) ClaimSeal {
	m.Keys = keys
	return m
}

// anyReason is m without a judgement of the reasons of rejections.
func (m ClaimSeal) anyReason() ClaimSeal {
	m.AnyReason = true
	return m
}

// byData is m judged by data and answers alone.
func (m ClaimSeal) byData() ClaimSeal {
	m.JudgeData = true
	return m
}

// holds is a row in which the protocol holds.
func holds(id, text string, m ClaimSeal) Variant { return of(id, text, Holds, m.bounds(), m) }

// broken is a row of m with one thing changed.
func broken(id, text string, want Violation, m ClaimSeal, by Mutation) Variant {
	v := of(id, text, want, m.bounds(), m.mutated(by))
	unbroken := of(id, "the protocol within the bounds of "+id, Holds, m.bounds(), m)
	v.Unbroken = &unbroken
	return v
}

// protocolVariants are bounds and faults within which the protocol holds.
func protocolVariants() []Variant {
	lost := Faults{LostReplies: true}
	shared := Faults{LostReplies: true, SharedGrants: true}
	everything := Faults{LostReplies: true, LostClaims: true, SharedGrants: true, ReissuedTokens: true, Aborts: true, Held: true}
	restore := Faults{LostReplies: true, SharedGrants: true, Held: true, Restore: true}
	failover := Faults{LostReplies: true, SharedGrants: true, Held: true, Failover: true}
	return []Variant{
		holds("P1", "the protocol, nothing lost but leases", within(2, 3, 4, Faults{})),
		holds("P2", "a third client", within(3, 3, 3, Faults{})),
		holds("P3", "COMMIT in flight, late or never, reply lost (N9)", within(2, 3, 3, Faults{LostReplies: true, LostClaims: true, Aborts: true})),
		holds("P4", "the same, a third client", within(3, 3, 2, Faults{LostReplies: true, LostClaims: true, Aborts: true})),
		holds("P5", "two clients with one grant (N10)", within(2, 3, 3, shared)),
		holds("P6", "the same, a third client", within(3, 3, 2, shared)),
		holds("P7", "P5 with the advisory begin check", within(2, 2, 3, shared).mutated(Mutation{BeginCheck: true})),
		holds("P8", "tokens issued twice (N20)", within(3, 3, 2, Faults{LostReplies: true, ReissuedTokens: true})),
		holds("P9", "entries of the history vanish (N26)", within(2, 3, 2, Faults{LostReplies: true, SharedGrants: true, Pruning: 1})),
		holds("P10", "the database goes back, by failover (N6)", within(2, 2, 2, failover)),
		holds("P10r", "the database goes back, restored from its volume (N21, N27)", within(2, 2, 2, restore)),
		holds("P11", "P10r, a third operation", within(3, 1, 3, Faults{SharedGrants: true, Held: true, Restore: true})),
		holds("P12", "two resources in each transaction", within(2, 2, 2, shared).onTwo()),
		holds("P13", "two resources, a third grant", within(2, 3, 2, lost).onTwo()),
		holds("P14", "groups", within(2, 3, 4, everything).grouped()),
		holds("P15", "everything but loss", within(2, 3, 2, everything)),
		holds("P16", "the database and the lock service go back (N20, N27)", within(2, 3, 2, Faults{ReissuedTokens: true, Held: true, Failover: true, Restore: true})),
		holds("P17", "history as the only fence, while it is whole (N26)", within(2, 2, 3, shared).mutated(Mutation{Seal: SealHistory})),
		holds("P18", "user code reads on another connection, the database fails over (N6)", within(2, 2, 2, failover).mutated(Mutation{ReadOutside: true})),
	}
}

// brokenVariants are the protocol with one thing changed. Each must fail; those
// that are judged by data alone show whether the data reveal it.
func brokenVariants() []Variant {
	var (
		plain   = within(2, 2, 2, Faults{})
		lost    = within(2, 2, 2, Faults{LostReplies: true})
		shared  = within(2, 1, 3, Faults{SharedGrants: true, Aborts: true})
		pruned  = within(2, 2, 2, Faults{LostReplies: true, Pruning: 1})
		lossy   = within(2, 1, 3, Faults{SharedGrants: true, Held: true, Restore: true})
		outside = within(2, 1, 3, Faults{SharedGrants: true, Held: true, Failover: true}).mutated(Mutation{ReadOutside: true})
	)
	return []Variant{
		broken("B1", "no claim (N1)", OlderCommitted, plain, Mutation{Claim: ClaimNever}),
		broken("B1d", "no claim: the position alone keeps the data", Holds, plain.byData(), Mutation{Claim: ClaimNever}),
		broken("B2", "no seal", OlderCommitted, plain, Mutation{Seal: SealNothing}),
		broken("B2d", "no seal", LostUpdate, plain.byData(), Mutation{Seal: SealNothing}),
		broken("B3", "begin check instead of seal", OlderCommitted, plain, Mutation{Seal: SealNothing, BeginCheck: true}),
		broken("B3d", "begin check instead of seal", LostUpdate, plain.byData(), Mutation{Seal: SealNothing, BeginCheck: true}),
		broken("B4", "no seal, two clients with one grant", LostUpdate, shared, Mutation{Seal: SealNothing}),
		broken("B5", "seal compares token and holder (N10)", LostUpdate, shared, Mutation{Seal: SealGrant}),
		broken("B6", "seal compares token and holder, unknown COMMIT (N9)", DeniedButApplied, lost, Mutation{Seal: SealGrant}),
		broken("B7", "attempt number instead of position (N9)", LostUpdate, shared, Mutation{Seal: SealAttempt}),
		broken("B8", "seal without the last transaction (N27)", LostUpdate, lossy, Mutation{Seal: SealNumber}),
		broken("B9", "transaction ids that go back with the database (N5, N27)", AckedNotApplied, lossy, Mutation{TxCounter: true}),
		broken("B10", "no void: the resolver only reads", DeniedButApplied, lost, Mutation{ResolveReads: true}),
		broken("B11", "unknown COMMIT retried blindly", AppliedTwice, within(2, 1, 2, Faults{LostReplies: true}).rerun(), Mutation{RetryBlindly: true}),
		broken("B12", "a pruned entry taken for a no", DeniedButApplied, pruned, Mutation{PrunedIsNo: true}),
		broken("B13", "history as the only fence, a void deleted (N26)", DeniedButApplied, pruned, Mutation{Seal: SealHistory}),
		broken("B13b", "history as the only fence, the newest entry deleted (N26)", LostUpdate, within(2, 1, 2, Faults{SharedGrants: true, Pruning: 1}), Mutation{Seal: SealHistory}),
		broken("B14", "claim takes a lower token", OlderCommitted, plain, Mutation{Claim: ClaimAny}),
		broken("B15", "claim takes an equal token of another holder (N20)", OlderCommitted, within(2, 2, 2, Faults{ReissuedTokens: true}), Mutation{Claim: ClaimEqual}),
		broken("B16", "claim rejects the holder's own token", UnjustifiedStale, within(2, 2, 2, Faults{LostClaims: true}), Mutation{Claim: ClaimOnce}),
		broken("B17", "seal in a transaction of its own", LostUpdate, shared, Mutation{SealApart: true}),
		broken("B18", "of two resources only the first is sealed", OlderCommitted, plain.onTwo(), Mutation{SealFirst: true}),
		broken("B18d", "of two resources only the first is sealed", LostUpdate, plain.onTwo().byData(), Mutation{SealFirst: true}),
		broken("B19", "resolved by a resource that it had not sealed", DeniedButApplied, lost.onTwo(), Mutation{SealFirst: true, WriteFirst: true, ResolveLast: true}),
		broken("B20", "a group's members answered before its outcome (N14)", AckedNotApplied, plain.grouped(), Mutation{EarlyAnswer: true}),
		broken("B21", "every rejection called stale", UnjustifiedStale, shared, Mutation{AllStale: true}),
		broken("B22", "user code reads on another connection, the volume is restored (N21)", LostUpdate, lossy, Mutation{ReadOutside: true}),
		broken("B23", "a held grant claims again and keeps what it had read", LostUpdate, within(2, 1, 4, Faults{SharedGrants: true, Held: true}), Mutation{KeepReads: true}),
		broken("B24", "P18, but any timeline will do (N6)", LostUpdate, outside, Mutation{ReadOutside: true, AnyTimeline: true}),
		broken("B25", "P18, but open transactions survive the failover", LostUpdate, outside, Mutation{ReadOutside: true, Survives: true}),
	}
}
