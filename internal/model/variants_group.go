package model

// groupVariants are the protocol with groups: several operations in one transaction.
func groupVariants() []Variant {
	var (
		failing  = Faults{LostReplies: true, SharedGrants: true, Aborts: true}
		failover = Faults{LostReplies: true, Failover: true}
		shared   = Faults{LostReplies: true, SharedGrants: true, Aborts: true}
		replaced = Faults{LostReplies: true, Failover: true, Synchronous: true}
		claims   = Faults{LostReplies: true, LostClaims: true, LockedRows: true}
	)
	return []Variant{
		holds("P30", "groups, a synchronous standby takes over (N22)", within(2, 2, 4, replaced).grouped()),
		holds("P31", "groups, the database fails over (N6)", within(2, 2, 4, failover).grouped()),
		holds("P32", "groups that did not take effect run again, each alone", within(2, 2, 2, failing).grouped().rerun()),
		holds("P32b", "the same, two groups", within(2, 2, 4, Faults{LostReplies: true}).grouped().rerun()),
		holds("P37", "groups of operations on different resources", within(2, 2, 2, shared).across()),
		holds("P37b", "the same, two groups", within(2, 2, 4, Faults{}).across()),
		holds("P38", "the same, a third grant", within(2, 3, 2, Faults{LostReplies: true}).across()),
		holds("P39", "the same, a synchronous standby takes over (N22)", within(2, 2, 2, replaced).across()),
		holds("P40", "several resources claimed in one transaction, a verdict each", within(2, 3, 1, claims).onTwo().together()),
		holds("P41", "the same, tokens issued twice, shared grants (N20)", within(2, 3, 1, Faults{SharedGrants: true, ReissuedTokens: true, LockedRows: true}).onTwo().together()),
		holds("P42", "groups on different resources that are claimed together", within(2, 3, 2, Faults{LockedRows: true}).across().together()),
	}
}

// brokenGroupVariants are those with one thing changed.
func brokenGroupVariants() []Variant {
	var (
		lost   = within(2, 2, 2, Faults{LostReplies: true})
		across = lost.across()
		plain  = within(2, 2, 2, Faults{}).across()
		claims = within(2, 3, 2, Faults{LockedRows: true}).onTwo().together()
	)
	return []Variant{
		broken("B43", "a group runs again when its COMMIT is unknown", AppliedTwice, within(2, 1, 2, Faults{LostReplies: true}).grouped().rerun(), Mutation{RetryBlindly: true}),
		broken("B44", "a group on different resources seals those that match", OlderCommitted, plain, Mutation{SealMatching: true}),
		broken("B44d", "the same", LostUpdate, plain.byData(), Mutation{SealMatching: true}),
		broken("B45", "a group on different resources seals the first only", OlderCommitted, plain, Mutation{SealFirst: true}),
		broken("B46", "a group resolved by a resource that it had not sealed", DeniedButApplied, across, Mutation{SealFirst: true, WriteFirst: true, ResolveLast: true}),
		broken("B47", "positions taken for unchanged after a void", UntrueReason, across, Mutation{KeepPositions: true}),
		broken("B48", "one rejected claim rolls back the others, which are taken for claimed", UntrueReason, claims, Mutation{Claims: ClaimsRolledBack}),
		broken("B49", "a fence that is locked is taken for claimed", UntrueReason, claims, Mutation{Claims: ClaimsLocked}),
		broken("B49b", "the same, whatever the reason that the seal's rejection has", OlderCommitted, claims.anyReason(), Mutation{Claims: ClaimsLocked}),
	}
}
