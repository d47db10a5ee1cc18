package model

// family is the protocol within bounds, and what fails within them when one thing is broken.
type family struct {
	name     string
	want     Violation
	protocol Protocol
	broken   []broken
}

type broken struct {
	name     string
	want     Violation
	by       Mutation
	dataOnly bool
}

func fails(name string, want Violation, by Mutation) broken { return broken{name, want, by, false} }

// inData is what data and answers alone reveal, or don't.
func inData(name string, want Violation, by Mutation) broken { return broken{name, want, by, true} }

// families are the rows of the table.
func families() []family {
	all := baseFamilies()
	all = append(all, severalFamilies()...)
	all = append(all, onceFamilies()...)
	return append(all, ownFamilies()...)
}

func (m Protocol) onTwo() Protocol            { m.Resources = 2; return m }
func (m Protocol) batched(size int8) Protocol { m.Batch = size; return m }
func (m Protocol) mixed() Protocol            { m.Mixed = true; return m }
func (m Protocol) once(keys int8) Protocol    { m.Keys = keys; return m }
func (m Protocol) own() Protocol              { m.Own = true; return m }
func (m Protocol) leased() Protocol           { m.Leased = true; return m }

// baseFamilies have one resource, and one operation in each transaction.
func baseFamilies() []family {
	everything := Faults{LostReplies: true, LostClaims: true, SharedGrants: true, ReissuedTokens: true, Aborts: true, Held: true}
	return []family{
		{"leases are lost", Holds, within(2, 3, 3, Faults{}), []broken{
			fails("no claim", OlderCommitted, Mutation{Claim: ClaimNever}),
			inData("no claim: the position alone keeps the data", Holds, Mutation{Claim: ClaimNever}),
			fails("claim takes a lower token", OlderCommitted, Mutation{Claim: ClaimAny}),
			inData("no seal", LostUpdate, Mutation{Seal: SealNothing}),
			inData("begin check instead of seal", LostUpdate, Mutation{Seal: SealNothing, BeginCheck: true}),
		}},
		{"replies are lost, COMMIT arrives late or never", Holds, within(2, 2, 2, Faults{LostReplies: true, LostClaims: true, Aborts: true}), []broken{
			fails("unknown COMMIT, seal compares token and holder", DeniedButApplied, Mutation{Seal: SealGrant}),
			fails("no void: the resolver only reads", DeniedButApplied, Mutation{ResolveReads: true}),
			fails("claim rejects the holder's own token", UnjustifiedStale, Mutation{Claim: ClaimOnce}),
		}},
		{"two clients have one grant", Holds, within(2, 1, 3, Faults{SharedGrants: true, Aborts: true}), []broken{
			fails("seal compares token and holder", LostUpdate, Mutation{Seal: SealGrant}),
			fails("seal in a transaction of its own", LostUpdate, Mutation{Apart: ApartSeal}),
			fails("every rejection is called stale", UnjustifiedStale, Mutation{AllStale: true}),
		}},
		{"two clients have one held grant", Holds, within(2, 1, 4, Faults{SharedGrants: true, Held: true}), []broken{
			fails("a held grant claims again and keeps what it had read", LostUpdate, Mutation{KeepReads: true}),
		}},
		{"tokens are issued twice, a third client", Holds, within(3, 3, 2, Faults{LostReplies: true, ReissuedTokens: true}), []broken{
			fails("claim takes an equal token of another holder", OlderCommitted, Mutation{Claim: ClaimEqual}),
		}},
		{"everything but losses of the database", Holds, within(2, 3, 2, everything), nil},
		{"an entry of the history vanishes", Holds, within(2, 2, 2, Faults{LostReplies: true, Pruning: 1}), []broken{
			fails("a pruned entry is taken for a no", DeniedButApplied, Mutation{PrunedIsNo: true}),
		}},
		{"the database goes back, restored from its volume", Holds, within(2, 1, 3, Faults{SharedGrants: true, Held: true, Restore: true}), []broken{
			fails("seal without the last transaction", LostUpdate, Mutation{Seal: SealNumber}),
			fails("transaction ids go back with the database", AckedNotApplied, Mutation{TxCounter: true}),
		}},
		{"the database goes back, by failover", Holds, within(2, 2, 2, Faults{LostReplies: true, SharedGrants: true, Failover: true}), nil},
		{"a synchronous standby takes over", Holds, within(2, 2, 2, Faults{LostReplies: true, SharedGrants: true, Failover: true, Synchronous: true}), nil},
		{"the database and the lock service go back", Holds, within(2, 2, 2, Faults{ReissuedTokens: true, Restore: true}), nil},
		{"user code reads on another connection, the database fails over", Holds, within(2, 1, 3, Faults{SharedGrants: true, OutsideReads: true, Failover: true}), []broken{
			fails("after a failover any timeline will do", LostUpdate, Mutation{AnyTimeline: true}),
			fails("open transactions survive a failover", LostUpdate, Mutation{Survives: true}),
		}},
		{"user code reads on another connection, the volume is restored", LostUpdate, within(2, 1, 3, Faults{SharedGrants: true, OutsideReads: true, Restore: true}), nil},
	}
}

// severalFamilies have several resources or operations in a transaction.
func severalFamilies() []family {
	return []family{
		{"two resources in each transaction", Holds, within(2, 2, 2, Faults{SharedGrants: true}).onTwo(), []broken{
			inData("of two resources those that match are sealed", LostUpdate, Mutation{SealMatching: true}),
		}},
		{"two resources in each transaction, replies are lost", Holds, within(2, 2, 2, Faults{LostReplies: true}).onTwo(), nil},
		{"batches share a transaction", Holds, within(2, 2, 2, Faults{LostReplies: true, SharedGrants: true}).batched(2), []broken{
			fails("batches are answered before the outcome", AckedNotApplied, Mutation{EarlyAnswer: true}),
			fails("batches run again when their COMMIT is unknown", DeniedButApplied, Mutation{RunAgain: true}),
		}},
		{"of three batches one fails, runs alone, the others together", Holds, within(2, 2, 3, Faults{LostReplies: true, Aborts: true}).batched(3), []broken{
			fails("the others are taken for committed", AckedNotApplied, Mutation{FailsAlone: true}),
		}},
		{"two resources, and one of them", Holds, within(2, 2, 2, Faults{LostReplies: true, Aborts: true}).onTwo().mixed(), []broken{
			fails("a COMMIT is resolved by a resource that it was not to seal", DeniedButApplied, Mutation{ResolveAnywhere: true}),
			fails("positions are taken for unchanged after a void", UntrueReason, Mutation{KeepPositions: true}),
		}},
		{"two resources, and one of them, a synchronous standby takes over", Holds, within(2, 2, 2, Faults{LostReplies: true, Failover: true, Synchronous: true}).onTwo().mixed(), nil},
	}
}

// onceFamilies are about operations with keys (guard.Once).
func onceFamilies() []family {
	return []family{
		{"Once", Holds, within(2, 2, 2, Faults{LostReplies: true, Crashes: true}).once(1), []broken{
			fails("key is looked up before the claim", AppliedTwice, Mutation{LookUp: LookUpEarly}),
			fails("key is kept in a transaction of its own, before", AckedNotApplied, Mutation{Apart: ApartKeyBefore}),
			fails("key is kept in a transaction of its own, after", AppliedTwice, Mutation{Apart: ApartKeyAfter}),
		}},
		{"Once, two clients with one grant", Holds, within(2, 1, 3, Faults{LostReplies: true, SharedGrants: true}).once(2), nil},
		{"Once in a held grant, between operations that rely on it", Holds, within(1, 1, 4, Faults{Held: true}).once(3), nil},
		{"Once over one resource or two", Holds, within(2, 2, 2, Faults{LostReplies: true, Crashes: true}).once(1).onTwo(), []broken{
			fails("key is kept for the first resource only", AppliedTwice, Mutation{KeepFirst: true}),
			fails("key is looked up for the first resource only", AppliedTwice, Mutation{LookUp: LookUpFirst}),
		}},
		{"Once, a synchronous standby takes over", Holds, within(2, 2, 2, Faults{LostReplies: true, SharedGrants: true, Failover: true, Synchronous: true}).once(1), []broken{
			fails("key is answered wherever the fence is", AckedNotApplied, Mutation{LookUp: LookUpNothing}),
			fails("key is answered where the fence has the grant, at whatever position", AckedNotApplied, Mutation{LookUp: LookUpGrant}),
		}},
		{"Once, the database fails over", Holds, within(2, 1, 2, Faults{LostReplies: true, SharedGrants: true, Failover: true}).once(1), nil},
		{"Once, a volume is restored", Holds, within(2, 1, 3, Faults{SharedGrants: true, Restore: true}).once(2), []broken{
			fails("key is hidden from a look-up when the fence has moved", AppliedTwice, Mutation{LookUp: LookUpHidden}),
		}},
	}
}

// ownFamilies are about transactions that claim by themselves (storage.Claimer).
func ownFamilies() []family {
	doubt := Faults{LostReplies: true, Aborts: true}
	return []family{
		{"transactions claim by themselves, beside leases that are lost", Holds, within(2, 3, 3, Faults{}).own(), []broken{
			inData("and don't lock the fence", LostUpdate, Mutation{Own: OwnUnlocked}),
			fails("and create a missing fence without the lock of its name", OwnerSuperseded, Mutation{Own: OwnCreates}),
		}},
		{"transactions claim by themselves, replies are lost", Holds, within(2, 3, 2, doubt).own(), []broken{
			fails("and draw their tokens before they lock the fence", OlderCommitted, Mutation{Own: OwnDrawsEarly}),
			fails("and don't look for owners of locks", OwnerSuperseded, Mutation{Own: OwnBesideOwners}),
			fails("and look for owners before they lock the fence", OwnerSuperseded, Mutation{Own: OwnLooksEarly}),
			fails("and don't look for waiters", PassedOver, Mutation{Own: OwnPassesWaiters}),
			fails("their COMMIT that makes the fence is resolved without the lock of its name", DeniedButApplied, Mutation{Own: OwnCreates}),
			fails("locks are granted while the fence is locked", OwnerSuperseded, Mutation{GrantsBeside: true}),
			fails("their COMMIT is resolved without the fence's lock", DeniedButApplied, Mutation{ResolveEarly: true}),
		}},
		{"transactions claim by themselves, a third client", Holds, within(3, 3, 2, doubt).own(), nil},
		{"transactions claim by themselves, beside held grants that travel", Holds, within(2, 3, 2, Faults{LostReplies: true, SharedGrants: true, Held: true}).own(), nil},
		{"transactions of two resources, or one, claim by themselves", Holds, within(2, 2, 2, doubt).own().onTwo(), nil},
		{"transactions claim by themselves, an entry of the history vanishes", Holds, within(2, 2, 2, Faults{LostReplies: true, Pruning: 1}).own(), nil},
		{"transactions claim by themselves, a synchronous standby takes over", Holds, within(2, 2, 2, Faults{LostReplies: true, Failover: true, Synchronous: true}).own(), nil},
		{"transactions claim by themselves, the database fails over", Holds, within(2, 2, 2, Faults{LostReplies: true, Failover: true}).own(), nil},
		{"transactions claim by themselves, a volume is restored", Holds, within(2, 3, 2, Faults{Held: true, Restore: true}).own(), nil},
		{"transactions claim under leases that are lost", Holds, within(2, 3, 3, Faults{}).leased(), []broken{
			inData("under leases, and don't lock the fence", LostUpdate, Mutation{Own: OwnUnlocked}),
			fails("under leases, also below the fence", OlderCommitted, Mutation{Own: OwnTakesAny}),
		}},
		{"transactions claim under leases, replies are lost", Holds, within(2, 3, 2, doubt).leased(), []broken{
			fails("under leases, their COMMIT is resolved without the fence's lock", DeniedButApplied, Mutation{ResolveEarly: true}),
		}},
		{"transactions claim under leases, a third client, grants that travel", Holds, within(3, 2, 2, Faults{LostReplies: true, LostClaims: true, SharedGrants: true, Held: true}).leased(), nil},
		{"transactions claim under leases of two resources, or one", Holds, within(2, 2, 2, doubt).leased().onTwo(), nil},
		{"transactions claim under leases, an entry of the history vanishes", Holds, within(2, 2, 2, Faults{LostReplies: true, Pruning: 1}).leased(), nil},
		{"transactions claim under leases, a synchronous standby takes over", Holds, within(2, 2, 2, Faults{LostReplies: true, Failover: true, Synchronous: true}).leased(), nil},
		{"transactions claim under leases, the database fails over", Holds, within(2, 2, 2, Faults{LostReplies: true, Failover: true}).leased(), nil},
		{"transactions claim under leases, a volume is restored", Holds, within(2, 3, 2, Faults{Held: true, Restore: true}).leased(), nil},
	}
}
