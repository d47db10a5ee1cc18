package mutants

const protectSQL = "storage/postgres/migrations/0006_protect.sql"

// sealedHere is the condition for a fence that the present transaction has sealed.
const sealedHere = ` and sealed operator(pg_catalog.=) pg_catalog.pg_current_xact_id()
            and pg_catalog.age(xmin) operator(pg_catalog.<=) 0`

// rejected is a way past the guard of a protected table, as a test of enforce mode.
func rejected(way string) Test {
	return inPostgres("TestProtect_RejectsEachWayPastTheGuard/" + way)
}

// protectMutants let writes past the guard of a protected table.
var protectMutants = []Mutant{
	change("protect-check-passes-early", "P2", protectSQL,
		`elsif not found then
            set`, `elsif false then
            set`,
		rejected("a_raw_COMMIT")),
	change("protect-check-is-not-deferred-again", "P3", protectSQL,
		`            set constraints {{schema}}.pending_write_sealed deferred;
`, ``,
		inPostgres("TestProtect_LetsGuardedWritesThrough/read_committed")),
	change("protect-check-scans-tables", "P3", protectSQL,
		`language plpgsql security definer set enable_seqscan = off as $$
declare
    v_last `, `language plpgsql security definer as $$
declare
    v_last `,
		inPostgres("TestProtect_DifferentResourcesDoNotConflict")),
	change("protect-never-forgets-ended-backends", "P3", functionsSQL,
		`    perform {{schema}}.forget_writes();
`, ``,
		inPostgres("TestPrune_ForgetsWhatEndedBackendsWrote")),
	change("protect-forgets-running-backends", "P3", protectSQL,
		`a where a.pid = w.pid)`, `a where false)`,
		inPostgres("TestPrune_ForgetsWhatEndedBackendsWrote")),
	change("protect-check-ends-at-a-record", "P2", protectSQL,
		`where pid operator(pg_catalog.=) new.pid and round operator(pg_catalog.=) new.round`, `where ctid operator(pg_catalog.=) new.ctid`,
		inPostgres("TestProtect_ChecksWhatARecordFollows")),
	change("protect-check-uses-the-sessions-operators", "P2", protectSQL,
		"new.fires operator(pg_catalog.>=) 1000", "new.fires >= 1000",
		inPostgres("TestProtect_UsesNoOperatorOfTheSession")),
	change("protect-check-never-ends", "P2", protectSQL,
		`new.fires operator(pg_catalog.>=) 1000 or `, ``,
		rejected("a_raw_COMMIT")),
	change("protect-takes-any-seal", "P2", protectSQL,
		sealedHere, ` and sealed operator(pg_catalog.<>) '0'`,
		rejected("a_seal_of_the_transaction_before,_and_the_setting")),
	change("protect-takes-a-claim-for-a-seal", "P2", protectSQL,
		sealedHere, ` and pg_catalog.age(xmin) operator(pg_catalog.<=) 0`,
		rejected("a_claim_in_place_of_the_seal")),
	change("protect-takes-a-void-for-a-seal", "P2", functionsSQL,
		`sealed = case p_kind when 'w' then v_xid else '0' end`, `sealed = v_xid`,
		rejected("a_void_in_place_of_the_seal")),
	change("protect-check-not-always", "P2", protectSQL,
		`enable always trigger pending_write_sealed`, `enable trigger pending_write_sealed`,
		rejected("session_replication_role_=_replica,_and_a_raw_COMMIT")),
	change("protect-triggers-not-always", "P1", protectSQL,
		`enable always trigger fencekit_protect', v_member`, `enable trigger fencekit_protect', v_member`,
		rejected("session_replication_role_=_replica")),
	change("protect-truncate-trigger-not-always", "P1", protectSQL,
		`enable always trigger fencekit_protect_truncate`, `enable trigger fencekit_protect_truncate`,
		rejected("session_replication_role_=_replica,_and_TRUNCATE")),
	change("protect-ignores-the-old-row", "P1", protectSQL,
		`{{schema}}.trigger_branch(p, 'old', 'INSERT', 'true')`, `{{schema}}.trigger_branch(p, 'old', 'INSERT', 'tg_op = ''DELETE''')`,
		rejected("a_row_that_moves_from_another_resource")),
	change("protect-ignores-the-new-row", "P1", protectSQL,
		`'DELETE', $if$tg_op = 'INSERT' or`, `'DELETE', $if$tg_op = 'INSERT' or false and`,
		rejected("a_row_that_moves_to_another_resource")),
	change("protect-checks-before-other-triggers", "P1", protectSQL,
		`fencekit_protect after insert`, `fencekit_protect before insert`,
		rejected("a_BEFORE_trigger_that_changes_the_resource")),
	change("protect-ignores-inheriting-tables", "P1", protectSQL,
		`c.oid = p_relation or not c.relispartition`, `c.oid = p_relation`,
		rejected("an_inheriting_table_itself")),
	change("protect-forgets-the-second-resource", "P1", protectSQL,
		`set round = round + 1, fires = 0, at = statement_timestamp(), writes = writes || v_entry where`, `set fires = 0, at = statement_timestamp(), writes = writes || v_entry where`,
		rejected("a_write_of_another_resource_behind_the_seal")),
	change("protect-checks-restored-notes", "P3", protectSQL,
		`new.xid operator(pg_catalog.<>) pg_catalog.pg_current_xact_id()`, `false`,
		inPostgres("TestProtect_RestoredNotesAreHarmless")),
	change("protect-takes-a-restored-note-for-its-own", "P2", protectSQL,
		`(xid <> v_xid or age(xmin) > 0)`, `xid <> v_xid`,
		inPostgres("TestProtect_RestoredNotesAreHarmless")),
	change("protected-overlooks-the-check-at-commit", "P5", protectSQL,
		`and t.tginitdeferred and t.tgenabled = 'A')`, `and t.tginitdeferred)`,
		inPostgres("TestProtected_SaysThatTheCheckAtCommitIsNotIntact")),
	change("protect-forgets-the-mode", "P1", protectSQL,
		`coalesce(p_audit, p.audit, true)`, `coalesce(p_audit, true)`,
		inPostgres("TestProtect_LeavesWhatIsNotGiven")),
	change("protect-mode-is-that-of-the-snapshot", "P1", protectSQL,
		`    if p_protection < 0 then
        perform`, `    if p.audit then
        perform`,
		inPostgres("TestProtect_CountsForOlderSnapshots/a_new_mode")),
	change("protect-check-passes-what-the-snapshot-lacks", "P2", protectSQL,
		`left join {{schema}}.protection on id`, `join {{schema}}.protection on id`,
		inPostgres("TestProtect_CountsForOlderSnapshots/a_new_protection,_and_a_forged_check")),
	change("protect-does-not-try-the-expression", "P1", protectSQL,
		`    perform {{schema}}.try_resource(p_relation, p_resource, v_owner);
`, ``,
		inPostgres("TestProtect_RejectsWhatItCannotProtect")),
	change("protect-audit-rejects", "P4", protectSQL,
		`    if p_protection < 0 then
        perform`, `    if false then
        perform`,
		inPostgres("TestProtect_AuditRecordsEachWayPastTheGuard/UPDATE")),
	change("protect-audit-waits-for-a-prepared-update", "P4", protectSQL,
		`for no key update skip locked))`, `for no key update))`,
		inPostgres("TestProtect_AuditWaitsForNoPreparedTransaction")),
	change("protect-audit-waits-for-a-prepared-insert", "P4", protectSQL,
		` and not exists (select from pg_prepared_xact())`, ``,
		inPostgres("TestProtect_AuditWaitsForNoPreparedTransaction")),
	change("protect-audit-fails-if-it-cannot-record", "P4", protectSQL,
		`exception when others then
    raise log 'fencekit: % of % for resource`, `exception when division_by_zero then
    raise log 'fencekit: % of % for resource`,
		inPostgres("TestProtect_AuditBreaksNoWriteThatItCannotRecord")),
	change("protect-audit-fails-if-it-cannot-note", "P4", protectSQL,
		`exception when others or assert_failure then
    raise log 'fencekit: the resource`, `exception when division_by_zero then
    raise log 'fencekit: the resource`,
		inPostgres("TestProtect_AuditBreaksNoWriteThatItCannotRecord")),
	change("protect-audit-fails-at-an-assert", "P4", protectSQL,
		`when others or assert_failure then`, `when others then`,
		inPostgres("TestProtect_AuditLetsAFailedAssertThrough")),
	change("unprotect-leaves-triggers", "P5", protectSQL,
		`order by tgrelid, tgname loop`, `order by tgrelid, tgname limit 0 loop`,
		inPostgres("TestUnprotect_RestoresTheTableExactly")),
}
