package mutants

import "strings"

const (
	sealPosition   = "\n           and r.seq = p_seq and r.tx = p_prev"
	sealEntered    = `if pg_current_xact_id() is distinct from coalesce(p_xid, nullif(current_setting('fencekit.xid', true), '')::xid8) then`
	sealGrant      = ` and r.epoch = p_epoch and r.token = p_token and r.holder = p_holder`
	resolveAppends = `if {{schema}}.append(p_resource, p_epoch, p_token, p_holder, p_seq, p_prev, 'v', p_void, null) then`
	sealInsert     = `    insert into {{schema}}.history (resource, kind, seq, claim, tx, xid, at, hash, ops)
    select p_resource, p_kind, p_seq + 1, moved.claim_seq, p_tx, v_xid, v_at, moved.hash, convert_from(p_ops, 'UTF8')::json from moved;
`
)

// sealMutants are in the functions append, seal, resolve and keep.
var sealMutants = []Mutant{
	change("seal-without-the-expected-position", "G6 N10", functionsSQL,
		sealPosition, "",
		inPostgres("TestFence_RejectsTheOvertakenSibling/read_committed/before_the_seal")),
	change("seal-at-any-position", "G4 G6 N9", functionsSQL,
		sealPosition, "",
		inPostgres("TestFence_RejectsTheOvertakenSibling/read_committed/before_the_seal")).and(
		withoutPositionKey).
		violates("late-commit"),
	change("seal-without-the-expected-number", "G6", functionsSQL,
		"and r.seq = p_seq and r.tx = p_prev", "and r.tx = p_prev",
		inPostgres("TestFence_BehindItsHolderIsNoticed/read_committed/its_number_alone")),
	change("seal-without-the-last-transaction", "N27", functionsSQL,
		"and r.seq = p_seq and r.tx = p_prev", "and r.seq = p_seq",
		inPostgres("TestFence_BehindItsHolderIsNoticed/read_committed/its_last_write,_and_a_sibling_took_the_position")),
	change("seal-without-the-grant", "G2 N10", functionsSQL,
		sealGrant, "",
		inPostgres("TestFence_RejectsTheTokenIssuedTwice/read_committed")),
	change("seal-without-the-holder", "N10", functionsSQL,
		` and r.holder = p_holder`, "",
		inPostgres("TestFence_RejectsTheTokenIssuedTwice/read_committed")),
	change("seal-at-any-position-and-grant", "G2 G3 G6", functionsSQL,
		sealGrant+sealPosition, "",
		inPostgres("TestFence_RejectsTheSuperseded/read_committed/before_the_seal")).and(
		withoutPositionKey).
		violates("unhindered-writer"),
	change("seal-rejects-everything", "G2 L1", functionsSQL,
		"and r.seq = p_seq and r.tx = p_prev", "and r.seq = p_seq + 1 and r.tx = p_prev",
		inContract("Seal_MovesByOnePosition")).
		violates("stalled-holder"),
	change("seal-that-only-reads", "G2 G6", functionsSQL,
		"set seq = p_seq + 1,\n               tx = p_tx,", "set seq = r.seq,\n               tx = r.tx,",
		inPostgres("TestFence_RejectsTheOvertakenSibling/read_committed/before_the_seal")),
	change("seal-writes-no-history", "G2 G5", functionsSQL,
		sealInsert, "    select from moved into v_at;\n",
		inContract("History_IsGaplessAndMonotone")),
	change("seal-does-not-look-whether-the-fence-moved", "G2 G3", functionsSQL,
		`nullif(decode(p_ops[i], 'hex'), '')) is not true then`, `nullif(decode(p_ops[i], 'hex'), '')) is null then`,
		inPostgres("TestFence_RejectsTheSuperseded/read_committed/before_the_seal")),
	change("seal-without-the-transactions-name", "N15 HB8", functionsSQL,
		sealEntered, `if false then`,
		inPostgres("TestRawCommit_IsNeverSuccess")).
		violates("user-code"),
	change("seal-takes-a-missing-id-for-any", "N15", functionsSQL,
		sealEntered, strings.Replace(sealEntered, "is distinct from", "<>", 1),
		inPostgres("TestSeal_OnlyInTheTransactionThatWasChecked")),
	change("seal-believes-the-setting-first", "N15", functionsSQL,
		sealEntered, `if pg_current_xact_id() is distinct from coalesce(nullif(current_setting('fencekit.xid', true), '')::xid8, p_xid) then`,
		inPostgres("TestForge_AnOperationCannotSealInAnotherTransaction")),
	change("seal-of-malformed-arrays", "G2", functionsSQL,
		` and cardinality(p_ops) = n and p_kept`, ` and p_kept`,
		inPostgres("TestFunctions_RejectMalformedArrays")),
	change("seal-in-any-order", "HB10", functionsSQL,
		`if i > 1 and p_resources[i] > p_resources[i - 1] is not true then`, `if false then`,
		inPostgres("TestFunctions_RejectMalformedArrays")),
	change("before-commit-leaves-the-settings", "N28 HE2", functionsSQL,
		"set jit = off as $$\nbegin\n    if current_setting('synchronous_commit') not in ('on', 'remote_apply') or current_setting('client_min_messages') = 'error' then\n        perform {{schema}}.raise_durability();\n    end if;\nend $$;\n\n-- resolve", "set jit = off as $$\nbegin\nend $$;\n\n-- resolve",
		inPostgres("TestCommit_IsDurableWhateverTheSettings")),
	change("commits-do-not-wait-for-the-disk", "N28 HE2", functionsSQL,
		`perform set_config('synchronous_commit', 'on', true);`, `null;`,
		inPostgres("TestCommit_IsDurableWhateverTheSettings")),
	change("commits-hide-the-servers-warning", "N22", functionsSQL,
		`perform set_config('client_min_messages', 'warning', true);`, `null;`,
		inPostgres("TestCommit_NotConfirmedByTheStandbyIsInDoubt")),

	change("void-is-not-written", "G4 N9", functionsSQL,
		resolveAppends, `if v_seq = p_seq then`,
		inPostgres("TestResolve_LateCommitIsRejected")).
		violates("late-commit"),
	change("resolve-takes-any-transaction-for-the-one", "G4", functionsSQL,
		`when v_tx = p_tx and v_kind = 'w' then 'applied'`, `when v_tx is not null then 'applied'`,
		inContract("Resolve_OfSupersededCommit")),
	change("resolve-answers-without-history", "G4 N26", functionsSQL,
		`when v_tx is not null or v_seq <= p_seq then 'not applied'
        else 'unknown'`, `else 'not applied'`,
		inPostgres("TestFence_StandsWithoutHistory")),
	change("resolve-at-any-isolation-level", "N23", functionsSQL,
		`if current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'fencekit: resolve`, `if false then
        raise exception 'fencekit: resolve`,
		inPostgres("TestFunctions_NeedReadCommitted")),
	change("resolve-does-not-lock", "G4", functionsSQL,
		`select seq into v_seq from {{schema}}.resource where id = p_resource for no key update;`,
		`select seq into v_seq from {{schema}}.resource where id = p_resource;`,
		inPostgres("TestResolve_WaitsForASealUnderWay")).
		survives("append waits for the same row; the lock adds that the number read stands still, which matters only where the entry is pruned in that very moment"),

	change("keep-without-a-move", "G2", functionsSQL,
		` and p_kept <@ p_resources
`, `
`,
		inPostgres("TestKeep_WithoutItsMoveIsRejected")),
	change("keep-reads-the-history", "N23", functionsSQL,
		`    for i in 1..cardinality(p_kept) loop
`, `    for i in 1..cardinality(p_kept) loop
        perform from {{schema}}.history where resource = p_kept[i] and seq = (select seq from {{schema}}.resource where id = p_kept[i]);
`,
		inPostgres("TestIsolation_KeepingForDifferentResourcesDoesNotConflict")),
	change("forget-what-is-new", "G4", functionsSQL,
		`where o.at < v_now - v_retention limit`, `where true limit`,
		inPostgres("TestPrune_KeepsOnceKeysForAsLongAsThePolicySays")),
}

// evictMutants are in the functions stale_backends and evict.
var evictMutants = []Mutant{
	change("evict-without-comparing-tokens", "N18", functionsSQL,
		`where (c.epoch, c.token) < (p_epoch, p_token) and (c.token`, `where (c.token`,
		inPostgres("TestEvict_SparesAllOtherBackends")),
	change("evict-a-newer-grant", "N18", functionsSQL,
		`where (c.epoch, c.token) < (p_epoch, p_token) and (c.token`, `where (c.epoch, c.token) > (p_epoch, p_token) and (c.token`,
		inPostgres("TestEvict_SparesAllOtherBackends")),
	change("evict-another-resources-holder", "N18", functionsSQL,
		` and l.classid::bigint = r.id`, ``,
		inPostgres("TestEvict_SparesAllOtherBackends")),
	change("evict-in-another-database", "N18", functionsSQL,
		"\n       and l.database = (select d.oid from pg_database d where d.datname = current_database())", "",
		inPostgres("TestEvict_SparesAllOtherBackends")),
	change("evict-itself", "N18", functionsSQL,
		` and l.pid <> pg_backend_pid()`, ``,
		inPostgres("TestEvict_SparesAllOtherBackends")),
	change("evict-its-own-low-bits", "N18", functionsSQL,
		"\n       and (p_token & 2147483647) <> l.objid::bigint;", ";",
		inPostgres("TestEvict_SparesAllOtherBackends")),
	change("evict-holders-of-other-locks", "N18", functionsSQL,
		` and l.mode = 'ShareLock'`, ``,
		inPostgres("TestEvict_SparesOtherLocks")),
	change("evict-holders-of-keys-of-another-kind", "N18", functionsSQL,
		` and l.objsubid = 2`, ``,
		inPostgres("TestEvict_SparesOtherLocks")),
	change("evict-gives-up-without-the-right", "N19", functionsSQL,
		`exception when insufficient_privilege then`, `exception when division_by_zero then`,
		inPostgres("TestClaim_SucceedsWithoutTheRightToEvict")),
	change("evict-without-looking-again", "N18", functionsSQL,
		`perform pg_terminate_backend(s, p_wait_ms) from {{schema}}.stale_backends(v_name, p_epochs[i], p_tokens[i]) s where s = v_pid;`,
		`perform pg_terminate_backend(v_pid, p_wait_ms);`,
		inPostgres("TestEvict_LooksAgainBeforeItTerminates")),
	change("evict-does-not-wait", "L1", functionsSQL,
		`perform pg_terminate_backend(s, p_wait_ms) from`, `perform pg_terminate_backend(s) from`,
		inPostgres("TestClaim_EvictsAStuckPredecessor/idle_with_a_row_locked")).
		survives("the claim has decided already, and a statement that meets a lock of a backend which is about to end waits for it there"),
	change("evict-looks-for-no-stale-backend", "L1 N3", functionsSQL,
		`continue when not found;`, `continue;`,
		inPostgres("TestClaim_EvictsAStuckPredecessor/idle_with_a_row_locked")),
	change("evict-looks-only-for-the-grant-before", "L1", functionsSQL,
		`if not p_thorough then`, `if true then`,
		inPostgres("TestRun_EvictsWhatNoClaimFound")),
	change("evict-nothing", "L1 N3", functionsSQL,
		`perform pg_terminate_backend(s, p_wait_ms) from`, `perform from`,
		inPostgres("TestEvict_SparesAllOtherBackends")),
}
