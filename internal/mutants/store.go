package mutants

const pg = "storage/postgres/"

// storeMutants are in how the store claims and commits, and in what it makes of
// the answers.
var storeMutants = []Mutant{
	change("seal-dropped", "G2", pg+"commit.go",
		`sql = append(sql, t.store.sql.seal...)`, `if t.id != 0 {
		return string(sql) + "call fence.before_commit(); " + t.store.sql.beforeCommit + "; commit; " + t.leaveSQL(), nil
	}`,
		inPostgres("TestFence_RejectsTheSuperseded/read_committed/before_the_seal")).
		violates("stalled-holder"),
	change("seal-in-a-transaction-of-its-own", "G2", pg+"commit.go",
		`sql = append(sql, "set constraints all immediate; "...)`, `sql = append(sql, "commit; "+t.beginSQL()+"; set constraints all immediate; "...)`,
		inPostgres("TestFence_RejectsTheSuperseded/read_committed/before_the_seal")).
		violates("stalled-holder"),
	change("seal-before-deferred-constraints", "L1 N13", pg+"commit.go",
		`sql = append(sql, "set constraints all immediate; "...)`, ``,
		inPostgres("TestSeal_DeferredTriggersRunBeforeIt")),
	change("seal-in-the-callers-order", "HB10", pg+"commit.go",
		`return cmp.Compare(a.Resource, b.Resource)`, `return cmp.Compare(a.Resource, a.Resource)`,
		inPostgres("TestSeal_OppositeOrdersNeverDeadlock")),
	change("commit-leaves-the-position", "G2 G6", pg+"commit.go",
		`claims[i].Position = storage.Position{Seq: claims[i].Seq + 1, Tx: t.id}`, `claims[i].Position = claims[i].Position`,
		inContract("Seal_MovesByOnePosition")),
	change("commit-after-an-operation-that-failed", "G4", pg+"commit.go",
		`if t.conn == nil || t.failed {`, `if t.conn == nil {`,
		inContract("Run_PanicLeavesNothing")),
	change("commit-although-its-context-has-ended", "G4", pg+"commit.go",
		`if err := ctx.Err(); err != nil {`, `if err := ctx.Err(); false {`,
		inContract("Commit_CancelledDoesNothing")),
	change("keep-in-front-of-the-seals", "G5", functionsSQL,
		"    for i in 1..n loop\n        if i > 1 and p_resources[i]", "    for i in 1..cardinality(p_kept) loop\n        insert into {{schema}}.operation (resource, key, request, tx, at) values (p_kept[i], convert_from(decode(p_keys[i], 'hex'), 'UTF8'), decode(p_requests[i], 'hex'), p_tx, now());\n    end loop;\n    for i in 1..n loop\n        if i > 1 and p_resources[i]",
		inPostgres("TestOnce_TheSecondUseOfAKeyIsRejectedByTheFence/superseded/read_committed")).and(
		Edit{functionsSQL, "    end loop;\n    for i in 1..cardinality(p_kept) loop\n", "    end loop;\n    for i in 1..0 loop\n"}),

	change("resolve-takes-not-applied-for-applied", "G4", pg+"resolve.go",
		"s.recordLost(ctx, claim)\n\t\t\treturn false, nil", "s.recordLost(ctx, claim)\n\t\t\treturn true, nil",
		inPostgres("TestResolve_CommitThatNeverArrived")).
		violates("unknown-commits"),
	change("resolve-takes-applied-for-not-applied", "G4", pg+"resolve.go",
		"case \"applied\":\n\t\t\treturn true, nil", "case \"applied\":\n\t\t\treturn false, nil",
		inPostgres("TestResolve_CommitWhoseReplyWasLost")).
		violates("unknown-commits"),
	change("resolve-guesses-what-was-pruned", "G4 N26", pg+"resolve.go",
		`return false, ErrPruned`, `return false, nil`,
		inPostgres("TestFence_StandsWithoutHistory")),
	change("resolve-records-no-rejection", "G5", pg+"resolve.go",
		"\t\t\ts.recordLost(ctx, claim)\n", "",
		inPostgres("TestResolve_RecordsTheRejectionWhoseAnswerWasLost")),

	change("claim-does-not-evict", "L1 N3", pg+"claim.go",
		`s.transact(ctx, s.claimSQL(seen), s.evictSQL(grants, false))`, `s.transact(ctx, s.claimSQL(seen), "")`,
		inPostgres("TestClaim_EvictsAStuckPredecessor/idle_with_a_row_locked")),
	change("claims-that-are-rejected-count", "G12", pg+"claim.go",
		`if state := row[4]; state != "" {`, `if state := row[4]; state != "" && len(grants) == 1 {`,
		inContract("Claim_OfSeveralClaimsTheGoodOnes")),
	change("claim-that-finds-the-fence-locked-gives-up", "L1", pg+"claim.go",
		"\t\ts.evict(ctx, grants)\n\t}", "\t\tbreak\n\t}",
		inPostgres("TestClaim_EvictsAStuckPredecessor/with_its_fence_locked")),
	change("rejections-are-not-recorded", "G5", pg+"rejection.go",
		`_, r.RecordErr = s.transact(ctx, fmt.Sprintf(s.sql.record,`, `_ = fmt.Sprint(fmt.Sprintf(s.sql.record,`,
		inContract("Rejection_IsRecordedAndJustified")).
		violates("stalled-holder"),
	change("rejections-end-with-the-callers-context", "G5", pg+"rejection.go",
		"ctx, cancel := s.cleanup(ctx)\n\tdefer cancel()\n\t_, r.RecordErr", "ctx, cancel := context.WithCancel(ctx)\n\tdefer cancel()\n\t_, r.RecordErr",
		inPostgres("TestRejection_IsRecordedThoughTheCallersContextHasEnded")),
	change("rejections-are-the-operations-own", "G5", pg+"rejection.go",
		`ours := stage != storage.StageRun`, `ours := stage != ""`,
		inPostgres("TestRun_UsersOwnErrorIsNoRejection")),
	change("rejections-by-isolation-are-not-named", "G5 N23", pg+"rejection.go",
		`case ended || state == sqlstate.Serialization:`, `case ended:`,
		inPostgres("TestIsolation_ConflictIsNamedAndRecorded")),
	change("rejections-by-eviction-are-not-named", "G5 L1", pg+"rejection.go",
		`case ended || state == sqlstate.Serialization:`, `case state == sqlstate.Serialization:`,
		inPostgres("TestFence_RejectsTheEvicted")),
	change("rejections-of-siblings-are-stale", "G5 G6", pg+"rejection.go",
		`sqlstate.Overtaken:   storage.ReasonOvertaken,`, `sqlstate.Overtaken:   storage.ReasonStale,`,
		inPostgres("TestFence_RejectsTheOvertakenSibling/read_committed/before_the_seal")),
	change("conflicts-are-not-temporary", "N23", pg+"rejection.go",
		`case sqlstate.Serialization, sqlstate.Deadlock,`, `case sqlstate.Deadlock,`,
		inPostgres("TestIsolation_ConflictWithOthersIsTransient")),
	change("all-of-a-kind-is-temporary", "G4", pg+"rejection.go",
		` && pgErr.Routine == "RevalidateCachedQuery"`, ``,
		inPostgres("TestRun_PlanThatNoLongerFitsIsTransient/0A000_of_another_kind")),
	change("fence-that-went-back-is-taken-for-good", "N21", "storage/rejection.go",
		`case order < 0 || at != c.Position:`, `case order < 0:`,
		Test{"storage", "TestCheck_JudgesAsTheSealDoes"}),
}
