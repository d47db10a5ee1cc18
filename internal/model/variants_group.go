package model

// groupVariants are the protocol with groups: several operations in one transaction.
func groupVariants() []Variant {
	var (
		failing  = Faults{LostReplies: true, SharedGrants: true, MemberErrors: true, Aborts: true}
		keyed    = Faults{LostReplies: true, SharedGrants: true, MemberErrors: true}
		crashes  = Faults{LostReplies: true, Crashes: true, MemberErrors: true}
		standby  = Faults{LostReplies: true, MemberErrors: true, Failover: true, Synchronous: true}
		failover = Faults{LostReplies: true, MemberErrors: true, Failover: true}
		raw      = Faults{LostReplies: true, Crashes: true, Aborts: true, RawCommits: true}
		shared   = Faults{LostReplies: true, SharedGrants: true, Aborts: true}
		replaced = Faults{LostReplies: true, Failover: true, Synchronous: true}
		claims   = Faults{LostReplies: true, LostClaims: true, LockedRows: true}
	)
	return []Variant{
		holds("P29", "groups, members fail alone (N14)", within(2, 3, 4, failing).grouped()),
		holds("P30", "groups, members fail alone, a synchronous standby takes over (N22)", within(2, 2, 4, standby).grouped()),
		holds("P31", "groups, members fail alone, the database fails over (N6)", within(2, 2, 4, failover).grouped()),
		holds("P32", "groups that did not take effect run again, each alone", within(2, 2, 2, failing).grouped().rerun()),
		holds("P32b", "the same, two groups", within(2, 2, 4, Faults{LostReplies: true}).grouped().rerun()),
		holds("P33", "groups of Once, each key once", within(2, 2, 4, keyed).grouped().once(2)),
		holds("P34", "the same, callers give up", within(2, 2, 4, crashes).grouped().once(2)),
		holds("P35", "groups of Once whose operations run alone afterwards", within(2, 2, 4, Faults{LostReplies: true}).grouped().once(2).rerun()),
		holds("P35b", "the same, callers give up and members fail alone", within(2, 2, 2, crashes).grouped().once(2).rerun()),
		holds("P36", "a member ends its group's transaction (N15)", within(1, 1, 4, raw).grouped().rerun()),
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
		group   = within(2, 2, 2, Faults{LostReplies: true, SharedGrants: true, MemberErrors: true, Aborts: true}).grouped()
		keys    = within(1, 1, 4, Faults{MemberErrors: true}).grouped().once(2)
		rerun   = within(2, 1, 3, Faults{LostReplies: true, SharedGrants: true}).grouped().once(2).rerun()
		raw     = within(1, 1, 2, Faults{RawCommits: true}).grouped().rerun()
		lost    = within(2, 2, 2, Faults{LostReplies: true})
		across  = lost.across()
		plain   = within(2, 2, 2, Faults{}).across()
		claims  = within(2, 3, 2, Faults{LockedRows: true}).onTwo().together()
		aborted = within(1, 1, 2, Faults{Aborts: true}).grouped()
	)
	return []Variant{
		broken("B35", "a member that fails alone gets its error at once (N14)", Groundless, group, Mutation{Group: GroupMutation{ErrorsEarly: true}}),
		broken("B36", "a member that failed alone gets its error whatever became of the group", Groundless, group, Mutation{Group: GroupMutation{ErrorsAnyway: true}}),
		broken("B37", "a member fails alone after its savepoint was released: its result, or its ctx", DeniedButApplied, group, Mutation{Group: GroupMutation{ErrorsLate: true}}),
		broken("B38", "two calls of one key in a group", AppliedTwice, within(1, 1, 2, Faults{}).grouped().once(1), Mutation{Group: GroupMutation{SameKey: true}}),
		broken("B39", "the key of a member that failed alone is kept", AckedNotApplied, keys, Mutation{Group: GroupMutation{KeepFailed: true}}),
		broken("B40", "members run again without permission", RanAgain, aborted, Mutation{Group: GroupMutation{RerunAll: true}}),
		broken("B41", "members run again after one has ended the transaction (N15)", AppliedTwice, raw, Mutation{Group: GroupMutation{RerunEnded: true}}),
		broken("B42", "members run again without looking up their keys again", AppliedTwice, rerun, Mutation{Group: GroupMutation{RerunBlind: true}}),
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
