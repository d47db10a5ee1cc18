package mutants

import "slices"

// trustMutants are in what the database itself is trusted for.
var trustMutants = slices.Concat(forgeMutants, forgetMutants, repairMutants, schemasMutants, historyMutants)

// forgeMutants are in what an app role could forge.
var forgeMutants = []Mutant{
	change("resolve-takes-a-void-for-a-commit", "G4", functionsSQL,
		`when v_tx = p_tx and v_kind = 'w' then`, `when v_tx = p_tx then`,
		inPostgres("TestForge_OnlyAWriteIsACommit")),
}

// forgetMutants are in how operations are forgotten.
var forgetMutants = []Mutant{
	change("forget-trusts-a-clock-that-jumped", "G4", functionsSQL,
		`if (v_now between c.seen and c.seen + v_retention / 4) is not true then`, `if c.seen is null then`,
		inPostgres("TestPrune_IsNotMisledByAClockThatJumped")),
	change("forget-trusts-a-clock-at-once", "G4", functionsSQL,
		`if c.steady > v_now - v_retention then`, `if false then`,
		inPostgres("TestPrune_IsNotMisledByAClockThatJumped")),
	change("keep-believes-a-clock-that-was-set-back", "G4", functionsSQL,
		`greatest(clock_timestamp(), (select seen from {{schema}}.forget_clock where one))`, `clock_timestamp()`,
		inPostgres("TestPrune_IsNotMisledByAClockThatWasSetBack")),
	change("forget-waits-for-an-operation", "L1", functionsSQL,
		`limit p_limit for update skip locked));`, `limit p_limit for update));`,
		inPostgres("TestPrune_NeverWaitsForALock")),
	change("forget-waits-for-another-call", "L1", functionsSQL,
		`from {{schema}}.forget_clock where one for no key update skip locked;`, `from {{schema}}.forget_clock where one for no key update;`,
		inPostgres("TestPrune_NeverWaitsForALock")),
}

// repairMutants are in what repairs a fence that is behind its history.
var repairMutants = []Mutant{
	change("repair-leaves-the-grant", "N26 G3", functionsSQL,
		`set timeline = c.timeline, epoch = c.epoch, token = c.token, prev_token = 0, claim_seq = c.seq`, `set claim_seq = c.seq`,
		inPostgres("TestFence_BehindItsHistoryIsNamedAndRepaired")),
	change("fence-behind-its-history-is-not-named", "N26", "storage/postgres/rejection.go",
		`pgErr.ConstraintName != "history_pkey"`, `true`,
		inPostgres("TestFence_BehindItsHistoryIsNamedAndRepaired")),
}

// schemasMutants are in what tells of a second schema.
var schemasMutants = []Mutant{
	change("another-schema-goes-unnoticed", "G3", "storage/postgres/check.go",
		`	s.warnOfOthers(ctx)
`, ``,
		inPostgres("TestCheck_WarnsOfAnotherSchemaWithFences")),
}

// historyMutants are in what the history tells.
var historyMutants = []Mutant{
	change("history-without-an-order", "G2", "storage/postgres/queries.go",
		` and e.seq > $2 order by e.seq limit $3`, ` and e.seq > $2 limit $3`,
		inPostgres("TestHistory_ComesInOrder")),
	change("claim-at-the-time-of-its-transaction", "G5", functionsSQL,
		`        v_at := clock_timestamp();`, `        v_at := now();`,
		inPostgres("TestHistory_TimesAreThoseOfTheMoves")),
	change("write-at-the-time-of-its-transaction", "G5", functionsSQL,
		`v_at  timestamptz := clock_timestamp();`, `v_at  timestamptz := now();`,
		inPostgres("TestHistory_TimesAreThoseOfTheMoves")),
	change("epoch-trigger-not-always", "N20", schemaSQL,
		`{{schema}}.setting enable always trigger protect_epoch;`, `{{schema}}.setting enable trigger protect_epoch;`,
		inPostgres("TestClaim_EpochBehindComesBeforeAnAbsurdToken")),
}
