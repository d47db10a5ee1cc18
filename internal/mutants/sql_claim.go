package mutants

import "strings"

const (
	schemaSQL    = "storage/postgres/migrations/0001_schema.sql"
	functionsSQL = "storage/postgres/migrations/0002_functions.sql"
	retentionSQL = "storage/postgres/migrations/0003_retention.sql"

	headTakesKey = "        perform pg_try_advisory_xact_lock_shared(p_resources[i], (p_tokens[i] & 2147483647)::integer);\n"
	headLooks    = `        select timeline, name into v_timeline, v_name from {{schema}}.resource where id = p_resources[i] and epoch = p_epochs[i] and token = p_tokens[i];
        if not found then
            perform {{schema}}.reject(null, p_resources[i], p_epochs[i], p_tokens[i], '', 0);
        end if;
`
	claimMoves = `where f.id = o_resource and (f.epoch, f.token) < (p_epochs[o_place], p_tokens[o_place])`
	claimLocks = `select * into strict r from {{schema}}.resource where id = o_resource for no key update;`
)

// inPostgres is a test of the store.
func inPostgres(name string) Test { return Test{"storage/postgres", name} }

// inContract is a part of the contract of stores, at the default isolation level.
func inContract(part string) Test {
	return inPostgres("TestStore_PassesTheContract/read_committed/" + part)
}

// claimMutants are in the functions claim, locked and begin_check.
var claimMutants = []Mutant{
	change("claim-does-not-raise", "G1 G3", functionsSQL,
		claimMoves, claimMoves+` and false`,
		inPostgres("TestFence_RejectsTheSuperseded/read_committed/before_the_seal")).and(
		Edit{functionsSQL, `when (r.epoch, r.token) < (p_epochs[o_place], p_tokens[o_place]) then 'ZF004'`, ``}).
		violates("forged-tokens"),
	change("claim-takes-a-history-that-lacks-what-was-seen", "N6 HE1", functionsSQL,
		`if p_seqs[o_place] > 0 and`, `if false and`,
		inContract("Claim_RejectsAHistoryThatLacksWhatWasSeen")),
	change("claim-compares-how-far-the-fence-was-seen-alone", "N6 N21", functionsSQL,
		`return v_tx <> p_tx;`, `return false;`,
		inContract("Claim_RejectsAHistoryThatLacksWhatWasSeen")),
	change("claim-takes-what-was-pruned-for-lost", "N6", functionsSQL,
		`return not exists (select from {{schema}}.checkpoint where resource = p_resource and first > p_seq);`, `return true;`,
		inPostgres("TestPrune_LosesNothingThatWasSeen")),
	change("claim-takes-what-is-ahead-for-pruned", "N6 HE1", functionsSQL,
		`return not exists (select from {{schema}}.checkpoint where resource = p_resource and first > p_seq);`, `return not exists (select from {{schema}}.checkpoint where resource = p_resource);`,
		inPostgres("TestPrune_LosesNothingThatWasSeen")),
	change("claim-that-is-behind-goes-on", "N6 HE1", functionsSQL,
		"            return next;\n            continue;\n", "            return next;\n",
		inContract("Claim_RejectsAHistoryThatLacksWhatWasSeen")),
	change("claim-lets-a-lower-token-in", "G3", functionsSQL,
		`when (r.epoch, r.token) > (p_epochs[o_place], p_tokens[o_place]) then 'ZF001'`, ``,
		inContract("Claim_RejectsLowerToken")),
	change("claim-moves-a-higher-fence", "G3", functionsSQL,
		claimMoves, `where f.id = o_resource and (f.epoch, f.token) <> (p_epochs[o_place], p_tokens[o_place])`,
		inContract("Claim_RejectsLowerToken")),
	change("claim-compares-tokens-without-epochs", "G3 HD5", functionsSQL,
		claimMoves, `where f.id = o_resource and f.token < p_tokens[o_place]`,
		inContract("Claim_HigherEpochBeatsHigherToken")),
	change("claim-takes-any-holder", "G2 N10", functionsSQL,
		`when r.holder <> v_holder then 'ZF006'`, ``,
		inPostgres("TestFence_RejectsTheTokenIssuedTwice/read_committed")),
	change("claim-repeated-moves-the-fence", "G1", functionsSQL,
		claimMoves, `where f.id = o_resource and (f.epoch, f.token) <= (p_epochs[o_place], p_tokens[o_place])`,
		inContract("Claim_OfTheHolderIsIdempotent")),
	change("claim-shares-the-lock", "G3 HB11", functionsSQL,
		claimLocks, strings.Replace(claimLocks, "for no key update", "for share", 1),
		inPostgres("TestClaim_IsAloneWithTheFence")),
	change("claim-does-not-lock", "G3", functionsSQL,
		claimLocks, strings.Replace(claimLocks, " for no key update", "", 1),
		inPostgres("TestClaim_IsAloneWithTheFence")),
	change("claim-locks-in-the-callers-order", "HB10", functionsSQL,
		`where u.id is not null order by u.id loop`, `where u.id is not null loop`,
		inPostgres("TestClaim_OfSeveralLocksInTheSealsOrder")),
	change("claim-locks-before-it-creates", "HB10", functionsSQL,
		`select id into v_id from {{schema}}.resource where name = v_names[i];`, `select id into v_id from {{schema}}.resource where name = v_names[i] for no key update;`,
		inPostgres("TestClaim_OfSeveralCreatesBeforeItLocks")),
	change("claim-takes-names-in-any-order", "HB10", functionsSQL,
		`and (i = 1 or v_names[i] collate "C" > v_names[i - 1] collate "C")) is not true`, `) is not true`,
		inPostgres("TestFunctions_RejectMalformedArrays")),
	change("claim-rejected-rejects-all", "G3", functionsSQL,
		"            if o_state is not null then\n", "            if o_state is not null then\n                raise exception 'rejected' using errcode = o_state;\n",
		inContract("Claim_OfSeveralClaimsTheGoodOnes")),
	change("claim-at-any-isolation-level", "N7 N23", functionsSQL,
		"if current_setting('transaction_isolation') <> 'read committed' then\n        raise exception 'fencekit: claim needs",
		"if false then\n        raise exception 'fencekit: claim needs",
		inPostgres("TestFunctions_NeedReadCommitted")),
	change("claim-takes-any-argument", "N25", functionsSQL,
		`if (p_epochs[i] between 1 and 2147483647 and p_tokens[i] between 1 and 4611686018427387903`,
		`if (p_epochs[i] is not null and p_tokens[i] is not null`,
		inPostgres("TestClaim_OutOfBoundsIsRejectedByTheDatabase")),
	change("claim-takes-an-absurd-token", "N25", functionsSQL,
		` or p_epoch >= s.epoch and s.token > 0 and p_token > s.token + s.max_token_jump then`, ` then`,
		inPostgres("TestClaim_AbsurdTokenIsRejected")),
	change("claim-takes-an-absurd-epoch", "N25", functionsSQL,
		`if p_epoch > s.epoch + s.max_epoch_jump or p_epoch >= s.epoch`, `if p_epoch >= s.epoch`,
		inPostgres("TestClaim_AbsurdTokenIsRejected")),
	change("claim-takes-an-epoch-that-is-over", "N20", functionsSQL,
		`if s.epoch > p_epoch then`, `if false then`,
		inPostgres("TestClaim_EpochOnlyRises")),
	change("claim-does-not-raise-the-epoch", "N20", functionsSQL,
		`if s.epoch < p_epoch then`, `if false then`,
		inPostgres("TestClaim_EpochOnlyRises")),
	change("claim-waits-for-the-mark", "N25 L1", functionsSQL,
		`from {{schema}}.setting where one for no key update skip locked;`, `from {{schema}}.setting where one for no key update;`,
		inPostgres("TestClaim_NeverWaitsForTheMarks")),
	change("claim-leaves-the-mark-where-it-was", "N25", functionsSQL,
		`if s.token = 0 or p_token > s.token + s.max_token_jump / 1024 then`, `if s.token = 0 then`,
		inPostgres("TestClaim_TheMarkFollowsTheTokens")),
	change("claim-of-before-a-failover-is-good", "HE1 N6", functionsSQL,
		`when r.timeline <> v_timeline then 'ZF011'`, ``,
		inPostgres("TestFailover_EndsTheGrantsOfBefore")),
	change("claim-is-not-durable", "N28 HE2", functionsSQL,
		"perform {{schema}}.raise_durability();\n\n    lock table", "lock table",
		inPostgres("TestCommit_IsDurableWhateverTheSettings")),
	change("claim-runs-with-the-callers-rights", "HC2", functionsSQL,
		"o_state text, o_detail text)\nlanguage plpgsql security definer set", "o_state text, o_detail text)\nlanguage plpgsql set",
		inPostgres("TestRoles_AppPassesTheContract")),
	change("fence-is-not-rebuilt", "N26 HB12", functionsSQL,
		"where name = p_name and kind = 'c' order by seq desc limit 1;\n    if found then", "where name = p_name and kind = 'c' order by seq desc limit 1;\n    if false then",
		inPostgres("TestFence_IsRebuiltFromItsHistory")),

	change("begin-check-lets-the-superseded-begin", "N17", functionsSQL,
		headLooks, `        select timeline, name into v_timeline, v_name from {{schema}}.resource where id = p_resources[i];
`,
		inPostgres("TestBeginCheck_RejectsASupersededGrantEarly")),
	change("begin-check-looks-before-it-takes-its-key", "N17", functionsSQL,
		headTakesKey+headLooks, headLooks+headTakesKey,
		inPostgres("TestBeginCheck_HoldsItsKeyWhenItLooks")),
	change("begin-check-takes-any-timeline", "HE1 N6", functionsSQL,
		`if v_timeline <> v_now then`, `if false then`,
		inPostgres("TestFailover_EndsTheGrantsOfBefore")),
	change("begin-check-bounds-no-wait-for-locks", "L1", functionsSQL,
		`v_done := set_config('lock_timeout', p_lock_ms::text, true) || `, `v_done := `,
		inPostgres("TestBeginCheck_BoundsTheTransaction")),
	change("begin-check-bounds-no-statement", "L1", functionsSQL,
		`|| set_config('statement_timeout', p_statement_ms::text, true)`, ``,
		inPostgres("TestBeginCheck_BoundsTheTransaction")),
	change("begin-check-bounds-no-pause", "L1 HA2", functionsSQL,
		`|| set_config('idle_in_transaction_session_timeout', p_idle_ms::text, true)`, ``,
		inPostgres("TestBeginCheck_BoundsTheTransaction")),
	change("begin-check-sets-its-id-beyond-the-transaction", "N15 HB18", functionsSQL,
		`set_config('fencekit.xid', o_xid, true)`, `set_config('fencekit.xid', o_xid, false)`,
		inPostgres("TestBeginCheck_LeavesNothingInTheSession")),
}
