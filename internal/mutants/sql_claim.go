package mutants

const (
	schemaSQL    = "storage/postgres/migrations/0001_schema.sql"
	functionsSQL = "storage/postgres/migrations/0002_functions.sql"

	headTakesKey = "    perform pg_try_advisory_xact_lock_shared(p_resource, (p_token & 2147483647)::integer);\n"
	headLooks    = `    select * into r from {{schema}}.resource where id = p_resource;
    if not found or (r.epoch, r.token) is distinct from (p_epoch, p_token) then
        perform {{schema}}.reject(r, p_epoch, p_token, '', 0);
    end if;
`
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
		`if (r.epoch, r.token) < (p_epoch, p_token) then`, `if false then`,
		inPostgres("TestFence_RejectsTheSuperseded_G2_G3_G5/read_committed/before_the_seal")).
		violates("forged-tokens"),
	change("claim-lets-a-lower-token-in", "G3", functionsSQL,
		`if (r.epoch, r.token) > (p_epoch, p_token) or (r.epoch, r.token) = (p_epoch, p_token) and r.holder <> p_holder then`,
		`if (r.epoch, r.token) = (p_epoch, p_token) and r.holder <> p_holder then`,
		inContract("Claim_RejectsLowerToken_G3")),
	change("claim-compares-tokens-without-epochs", "G3 HD5", functionsSQL,
		`if (r.epoch, r.token) > (p_epoch, p_token) or`, `if r.token > p_token or`,
		inContract("Claim_HigherEpochBeatsHigherToken_G3")),
	change("claim-takes-any-holder", "G2 N10", functionsSQL,
		` or (r.epoch, r.token) = (p_epoch, p_token) and r.holder <> p_holder then`, ` then`,
		inPostgres("TestFence_RejectsTheTokenIssuedTwice_N10/read_committed")),
	change("claim-repeated-moves-the-fence", "G1", functionsSQL,
		`if (r.epoch, r.token) < (p_epoch, p_token) then`, `if (r.epoch, r.token) <= (p_epoch, p_token) then`,
		inContract("Claim_OfTheHolderIsIdempotent_G1")),
	change("claim-shares-the-lock", "G3 HB11", functionsSQL,
		"select * into r from {{schema}}.resource where name = p_name for no key update;\n    if found then",
		"select * into r from {{schema}}.resource where name = p_name for share;\n    if found then",
		inPostgres("TestClaim_IsAloneWithTheFence_G3")),
	change("claim-does-not-lock", "G3", functionsSQL,
		"select * into r from {{schema}}.resource where name = p_name for no key update;\n    if found then",
		"select * into r from {{schema}}.resource where name = p_name;\n    if found then",
		inPostgres("TestClaim_IsAloneWithTheFence_G3")),
	change("claim-at-any-isolation-level", "N7 N23", functionsSQL,
		"if current_setting('transaction_isolation') <> 'read committed' then\n        raise exception 'fencekit: claim needs",
		"if false then\n        raise exception 'fencekit: claim needs",
		inPostgres("TestFunctions_NeedReadCommitted_N23")),
	change("claim-takes-any-argument", "N25", functionsSQL,
		`if p_epoch is null or p_epoch not between 1 and 2147483647 or p_token is null or p_token not between 1 and 4611686018427387903`,
		`if p_epoch is null or p_token is null`,
		inPostgres("TestClaim_OutOfBoundsIsRejectedByTheDatabase_N25")),
	change("claim-takes-an-absurd-token", "N25", functionsSQL,
		` or p_epoch >= s.epoch and s.token > 0 and p_token > s.token + s.max_token_jump then`, ` then`,
		inPostgres("TestClaim_AbsurdTokenIsRejected_N25_HC2")),
	change("claim-takes-an-absurd-epoch", "N25", functionsSQL,
		`if p_epoch > s.epoch + s.max_epoch_jump or p_epoch >= s.epoch`, `if p_epoch >= s.epoch`,
		inPostgres("TestClaim_AbsurdTokenIsRejected_N25_HC2")),
	change("claim-takes-an-epoch-that-is-over", "N20", functionsSQL,
		`if s.epoch > p_epoch then`, `if false then`,
		inPostgres("TestClaim_EpochOnlyRises_N20")),
	change("claim-does-not-raise-the-epoch", "N20", functionsSQL,
		`if s.epoch < p_epoch then`, `if false then`,
		inPostgres("TestClaim_EpochOnlyRises_N20")),
	change("claim-waits-for-the-mark", "N25 L1", functionsSQL,
		`from {{schema}}.setting where one for no key update skip locked;`, `from {{schema}}.setting where one for no key update;`,
		inPostgres("TestClaim_NeverWaitsForTheMarks_N25_L1")),
	change("claim-leaves-the-mark-where-it-was", "N25", functionsSQL,
		`if s.token = 0 or p_token > s.token + s.max_token_jump / 1024 then`, `if s.token = 0 then`,
		inPostgres("TestClaim_TheMarkFollowsTheTokens_N25")),
	change("claim-of-before-a-failover-is-good", "HE1 N6", functionsSQL,
		`if (r.epoch, r.token) = (p_epoch, p_token) and r.timeline <> v_timeline then`, `if false then`,
		inPostgres("TestFailover_EndsTheGrantsOfBefore_HE1")),
	change("claim-is-not-durable", "N28 HE2", functionsSQL,
		"perform {{schema}}.raise_durability();\n\n    select * into strict s", "select * into strict s",
		inPostgres("TestCommit_IsDurableWhateverTheSettings_N28")),
	change("claim-runs-with-the-callers-rights", "HC2", functionsSQL,
		"out o_resource integer, out o_seq bigint, out o_tx bigint\n)\nlanguage plpgsql security definer set", "out o_resource integer, out o_seq bigint, out o_tx bigint\n)\nlanguage plpgsql set",
		inPostgres("TestRoles_AppPassesTheContract_HC2")),
	change("fence-is-not-rebuilt", "N26 HB12", functionsSQL,
		"where name = p_name and kind = 'claim' order by seq desc limit 1;\n    if found then", "where name = p_name and kind = 'claim' order by seq desc limit 1;\n    if false then",
		inPostgres("TestFence_IsRebuiltFromItsHistory_N26")),

	change("begin-check-lets-the-superseded-begin", "N17", functionsSQL,
		`if not found or (r.epoch, r.token) is distinct from (p_epoch, p_token) then`, `if not found then`,
		inPostgres("TestBeginCheck_RejectsASupersededGrantEarly_N17")),
	change("begin-check-looks-before-it-takes-its-key", "N17", functionsSQL,
		headTakesKey+headLooks, headLooks+headTakesKey,
		inPostgres("TestBeginCheck_HoldsItsKeyWhenItLooks_N17")),
	change("begin-check-takes-any-timeline", "HE1 N6", functionsSQL,
		`if r.timeline <> {{schema}}.timeline() then`, `if false then`,
		inPostgres("TestFailover_EndsTheGrantsOfBefore_HE1")),
	change("begin-check-bounds-no-wait-for-locks", "L1", functionsSQL,
		`perform set_config('lock_timeout', p_lock_ms::text, true),`, `perform`,
		inPostgres("TestBeginCheck_BoundsTheTransaction_L1")),
	change("begin-check-bounds-no-statement", "L1", functionsSQL,
		`set_config('statement_timeout', p_statement_ms::text, true),`, ``,
		inPostgres("TestBeginCheck_BoundsTheTransaction_L1")),
	change("begin-check-bounds-no-pause", "L1 HA2", functionsSQL,
		`set_config('idle_in_transaction_session_timeout', p_idle_ms::text, true),`, ``,
		inPostgres("TestBeginCheck_BoundsTheTransaction_L1")),
	change("begin-check-sets-the-name-beyond-the-transaction", "N15 HB18", functionsSQL,
		`{{schema}}.mark(p_resource, p_epoch, p_token, p_tx)), true);`, `{{schema}}.mark(p_resource, p_epoch, p_token, p_tx)), false);`,
		inPostgres("TestPooler_NothingOfOursStaysOnTheServersConnection_HB18")),
}
