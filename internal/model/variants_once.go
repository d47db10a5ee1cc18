package model

// onceVariants are the protocol with keys (guard.Once).
func onceVariants() []Variant {
	var (
		crashes  = Faults{LostReplies: true, Crashes: true}
		shared   = Faults{LostReplies: true, Crashes: true, SharedGrants: true}
		reissued = Faults{LostReplies: true, Crashes: true, SharedGrants: true, ReissuedTokens: true}
		failover = Faults{LostReplies: true, Crashes: true, SharedGrants: true, Failover: true}
		standby  = Faults{LostReplies: true, Crashes: true, Failover: true, Synchronous: true}
		held     = Faults{SharedGrants: true, Held: true, Failover: true}
	)
	return []Variant{
		holds("P19", "Once, three calls of one key", within(2, 2, 3, crashes).once(1)),
		holds("P20", "the same, two clients with one grant", within(2, 1, 3, shared).once(1)),
		holds("P21", "Once, tokens issued twice", within(2, 3, 2, reissued).once(1)),
		holds("P22", "Once, two keys", within(2, 2, 3, Faults{LostReplies: true}).once(2)),
		holds("P23", "Once, the database fails over (N6)", within(2, 2, 2, failover).once(1)),
		holds("P24", "Once, two keys in held grants, the database fails over (N6)", within(2, 1, 3, held).once(2)),
		holds("P25", "Once, a synchronous standby takes over (N22)", within(2, 2, 3, standby).once(1)),
		holds("P26", "Once over one resource or two", within(2, 2, 2, crashes).once(1).onTwo()),
		holds("P27", "Once in a held grant, between operations that rely on it", within(1, 1, 4, Faults{Held: true}).once(3)),
		holds("P28", "Once, a volume is restored (N21)", within(2, 1, 3, Faults{SharedGrants: true, Restore: true}).once(1)),
	}
}

// brokenOnceVariants are those with one thing changed.
func brokenOnceVariants() []Variant {
	var (
		plain   = within(2, 2, 2, Faults{}).once(1)
		lost    = within(2, 1, 2, Faults{LostReplies: true}).once(1)
		standby = within(2, 2, 2, Faults{Failover: true, Synchronous: true}).once(1)
		sibling = within(2, 1, 2, Faults{SharedGrants: true, Failover: true, Synchronous: true}).once(1)
		failing = within(2, 1, 2, Faults{SharedGrants: true, Failover: true}).once(1)
		placed  = within(2, 1, 3, Faults{SharedGrants: true, Restore: true}).once(1)
	)
	return []Variant{
		broken("B26", "key looked up before the claim", AppliedTwice, plain, Mutation{LookUp: LookUpEarly}),
		broken("B27", "answered from the look-up alone (N22)", AckedNotApplied, standby, Mutation{LookUp: LookUpAlone}),
		broken("B27b", "the same, where the fence has the grant, at whatever position (N22)", AckedNotApplied, sibling, Mutation{LookUp: LookUpGrant}),
		broken("B28", "key kept in a transaction of its own, before", AckedNotApplied, lost, Mutation{Keep: KeepBefore}),
		broken("B29", "key kept in a transaction of its own, after", AppliedTwice, lost, Mutation{Keep: KeepAfter}),
		broken("B30", "key kept for the first resource only", AppliedTwice, plain.onTwo(), Mutation{Keep: KeepFirst}),
		broken("B31", "key looked up for the first resource only", AppliedTwice, plain.onTwo(), Mutation{LookUp: LookUpFirst}),
		broken("B32", "volume restored between the look-up and its transaction (N21)", AckedNotApplied, placed, Mutation{LookUp: LookUpAnywhere}),
		broken("B33", "what is kept hidden from a look-up when the fence has moved (N21)", AppliedTwice, placed, Mutation{LookUp: LookUpHidden}),
		broken("B34", "B32, and a failover for which any timeline will do (N6)", AckedNotApplied, failing, Mutation{LookUp: LookUpAnywhere, AnyTimeline: true}),
		broken("B34d", "any timeline will do, for Once alone", Holds, failing, Mutation{AnyTimeline: true}),
	}
}
