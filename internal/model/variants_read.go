package model

// readVariants are the protocol with read-only operations.
func readVariants() []Variant {
	var (
		shared   = Faults{LostReplies: true, SharedGrants: true, Reads: 2}
		reissued = Faults{LostReplies: true, SharedGrants: true, ReissuedTokens: true, Reads: 2}
		held     = Faults{SharedGrants: true, Held: true, Reads: 2}
		replaced = Faults{LostReplies: true, SharedGrants: true, Failover: true, Synchronous: true, Reads: 2}
		failover = Faults{SharedGrants: true, Held: true, Failover: true, Reads: 2}
		restore  = Faults{SharedGrants: true, Restore: true, Reads: 2}
	)
	return []Variant{
		holds("P43", "read-only operations", within(2, 3, 2, shared)),
		holds("P43b", "the same, a third client, tokens issued twice (N20)", within(3, 3, 1, reissued)),
		holds("P44", "read-only operations in held grants, which later operations rely on", within(2, 2, 2, held)),
		holds("P45", "read-only operations, a synchronous standby takes over (N22)", within(2, 2, 2, replaced)),
		holds("P46", "read-only operations in held grants, the database fails over (N6)", within(2, 2, 2, failover)),
		holds("P47", "read-only operations, a volume is restored (N21)", within(3, 1, 2, restore)),
		holds("P48", "read-only operations on two resources", within(2, 2, 2, Faults{SharedGrants: true, Reads: 1}).onTwo()),
		holds("P49", "a read-only operation that ends its transaction (N15)", within(2, 2, 2, Faults{SharedGrants: true, Reads: 1, RawReads: true})),
	}
}

// brokenReadVariants are those with one thing changed.
func brokenReadVariants() []Variant {
	var (
		plain   = within(2, 2, 1, Faults{Reads: 1})
		shared  = within(2, 1, 1, Faults{SharedGrants: true, Reads: 1})
		lost    = within(2, 2, 1, Faults{LostReplies: true, Reads: 1})
		restore = within(3, 1, 2, Faults{SharedGrants: true, Restore: true, Reads: 1})
		standby = within(2, 2, 1, Faults{SharedGrants: true, Failover: true, Reads: 1})
		placed  = within(2, 1, 2, Faults{SharedGrants: true, Failover: true, Synchronous: true, Reads: 1})
		raw     = within(2, 1, 1, Faults{SharedGrants: true, Reads: 1, RawReads: true})
		check   = func(rule ReadRule) Mutation { return Mutation{Read: ReadMutation{Check: rule}} }
	)
	return []Variant{
		broken("B50", "no read check", StaleRead, plain, check(ReadNothing)),
		broken("B51", "read check of token and holder (N10)", StaleRead, shared, check(ReadGrant)),
		broken("B52", "read check in the snapshot of the reads (N23)", StaleRead, plain, check(ReadSnapshot)),
		broken("B53", "read while a COMMIT of the client's own is in doubt", DeniedButApplied, lost, Mutation{Read: ReadMutation{Unsettled: true}}),
		broken("B54", "read check on another connection, the volume is restored (N21)", TornRead, restore, Mutation{Read: ReadMutation{Reconnects: true}}),
		broken("B55", "no begin check, read check of any timeline, begun on a standby", StaleRead, standby, Mutation{Read: ReadMutation{AnyServer: true, Check: ReadAnyTimeline}}),
		broken("B55b", "no begin check, begun on a standby", Holds, standby, Mutation{Read: ReadMutation{AnyServer: true}}),
		broken("B55c", "read check of any timeline", Holds, standby, check(ReadAnyTimeline)),
		broken("B56", "whatever transaction is open in the end commits (N15)", LostUpdate, raw, Mutation{Read: ReadMutation{AnyTransaction: true}}),
		broken("B57", "a repeated claim that writes nothing, a synchronous standby takes over (N22)", StaleRead, placed, Mutation{Claim: ClaimReads}),
	}
}
