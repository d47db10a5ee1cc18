package mutants

// tampered is the test of a kind of tampering with the tables.
func tampered(what string) Test { return Test{"audit", "TestVerify_FindsTampering/" + what} }

// forged is the test of a kind of tampering with an export.
func forged(what string) Test { return Test{"audit", "TestVerifyExports_FindTampering/" + what} }

const (
	chainGo   = "audit/verify_chain.go"
	subjectGo = "audit/verify_subject.go"
	soughtGo  = "audit/verify_sought.go"
	headsGo   = "audit/verify_heads.go"
	partsSQL  = "internal/schemadef/query.go"
	compareGo = "internal/schemadef/schemadef.go"
)

// verifyMutants each leave out one check of a history, which nothing else makes up for.
var verifyMutants = []Mutant{
	change("verify-ignores-hashes", "HF3", chainGo,
		`!bytes.Equal(want[:], e.Hash)`, `!bytes.Equal(want[:], want[:])`,
		tampered("operations_of_a_write_changed")),
	change("verify-ignores-gaps", "HF3", chainGo,
		`	case e.Seq > c.seq+1:
		c.missing(c.seq+1, e.Seq-1)
`, `	case e.Seq > c.seq+1:
`,
		tampered("an_entry_removed")),
	change("verify-ignores-repeated-positions", "HF3", chainGo,
		`		c.find(FindingRepeatedEntry, e.Seq,`, `		(&subject{verification: VerifyOptions{}.begin()}).find(FindingRepeatedEntry, e.Seq,`,
		tampered("a_second_entry_at_a_position")),
	change("verify-ignores-shapes", "HF3", chainGo,
		`if problem != "" {`, `if problem == "?" {`,
		tampered("a_write_with_a_grant_of_its_own")),
	change("verify-ignores-the-order-of-tokens", "F1", chainGo,
		`if c.claim.grant.compare(last.grant) <= 0 {`, `if c.claim.grant.compare(last.grant) < -1 {`,
		tampered("a_token_claimed_twice,_with_hashes_and_a_fence_that_fit")),
	change("verify-ignores-the-claims-of-writes", "HF3", chainGo,
		`	case e.Claim == c.claim.seq:
		return`, `	case e.Claim == c.claim.seq, e.Claim > 0:
		return`,
		tampered("the_claim_before_a_checkpoint_removed")),
	change("verify-ignores-what-is-before-a-checkpoint", "HF3", chainGo,
		`	if c.island != 0 {
		c.find(FindingWrongCheckpoint`, `	if c.island < 0 {
		c.find(FindingWrongCheckpoint`,
		tampered("an_entry_put_before_a_checkpoint")),
	change("verify-ignores-the-end", "HF3", subjectGo,
		`case c.seq < c.fence.Seq:`, `case c.seq < 0:`,
		tampered("all_entries_removed")),
	change("verify-ignores-missing-fences", "HF3", subjectGo,
		`		c.find(FindingMissingFence, c.seq,`, `		(&subject{verification: VerifyOptions{}.begin()}).find(FindingMissingFence, c.seq,`,
		tampered("a_fence_removed")),
	change("verify-ignores-fences", "HF3", subjectGo,
		`	default:
		c.compareFence()`, `	default:`,
		tampered("hash_of_a_fence_changed")),
	change("verify-ignores-the-grant-of-a-fence", "G3", subjectGo,
		`			difference{"grant", c.claim.grant.String(), fenceGrant(f).String()},
			difference{"holder"`, `			difference{"holder"`,
		tampered("token_of_a_fence_lowered,_to_let_an_old_holder_in")),
	change("verify-ignores-holds", "HF4", subjectGo,
		`c.checkpoint.PrunedAt > c.held.At+holdGrace`, `c.checkpoint.PrunedAt > c.held.At+1000*1000*holdGrace`,
		tampered("a_resource_on_hold_pruned")),
	change("verify-ignores-an-empty-history-after-a-checkpoint", "HF3", subjectGo,
		`if c.seq < c.checkpoint.First {`, `if c.seq < 0 {`,
		tampered("a_checkpoint_raised_after_the_end")),
	change("verify-takes-any-rejection-for-justified", "G5", soughtGo,
		`	case justified || r.CurrentHolder == "": // no grant had the fence`, `	case justified || r.CurrentHolder != "?":`,
		tampered("a_rejection_by_a_grant_that_never_had_the_fence_made_up")),
	change("verify-takes-contradictory-rejections", "G5", soughtGo,
		`	case !ok:
		s.unjustified`, `	case !ok && justified && false:
		s.unjustified`,
		tampered("token_of_a_rejected_grant_raised")),
	change("verify-ignores-kept-operations", "HF3", soughtGo,
		`case s.sought.written[i].Load():`, `case s.sought.written[i].Load() || true:`,
		tampered("a_kept_operation_made_up")),
	change("verify-ignores-the-marks", "HF3", "audit/verify.go",
		`case highest.epoch > s.Epoch:`, `case highest.epoch > s.Epoch+100:`,
		tampered("the_highest_epoch_lowered")),
	change("verify-ignores-missing-triggers", "HF3", compareGo,
		`for _, part := range gone {`, `for _, part := range gone[:0] {`,
		tampered("a_trigger_removed")),
	change("verify-takes-triggers-that-are-off", "HF3", partsSQL,
		`case g.tgenabled when 'A' then`, `case replace(g.tgenabled::text, 'D', 'A') when 'A' then`,
		tampered("a_trigger_turned_off")),
	change("verify-overlooks-constraint-triggers", "P2", "internal/schemadef/migrations.go",
		`(?:constraint )?trigger`, `trigger`,
		tampered("the_trigger_of_COMMIT_turned_off")),
	change("verify-overlooks-functions-in-standard-sql", "HF3", partsSQL,
		` else ' in standard SQL' end`, ` else ' as ' end`,
		Test{"internal/schemadef", "TestCompare_LeavesNothingOut"}),
	change("verify-takes-triggers-that-replication-skips", "HF3", partsSQL,
		`case g.tgenabled when 'A' then`, `case replace(g.tgenabled::text, 'O', 'A') when 'A' then`,
		tampered("a_trigger_turned_off_for_sessions_of_replication")),
	change("verify-ignores-foreign-triggers", "HF3", compareGo,
		`return p.Kind == "table" || p.Kind == "trigger"`, `return p.Kind == "table"`,
		tampered("a_trigger_added_that_changes_rows")),
	change("verify-takes-partial-keys", "HF3", partsSQL,
		`case when i.indpred is not null then 'of some rows alone' end, `, ``,
		tampered("a_unique_key_limited_to_some_rows")),
	change("verify-takes-invalid-keys", "HF3", partsSQL,
		`, case when not i.indisvalid then 'not valid' end`, ``,
		tampered("a_unique_key_that_isn't_valid")),
	change("verify-takes-deferrable-keys", "HF3", partsSQL,
		`case when not i.indimmediate then 'deferrable' end, `, ``,
		tampered("a_unique_key_deferred")),
	change("verify-takes-unlogged-tables", "HF3", partsSQL,
		`                union all select 'not logged' where c.relpersistence <> 'p' and c.relname not in ($unlogged)
`, ``,
		tampered("a_table_that_a_crash_empties")),
	change("verify-takes-row-level-security", "HF3", partsSQL,
		`                union all select 'under row-level security' where c.relrowsecurity
`, ``,
		tampered("row-level_security_turned_on")),
	change("verify-takes-rules", "HF3", partsSQL,
		`                union all select 'under the rule ' || quote_ident(r.rulename) from pg_rewrite r where r.ev_class = c.oid and c.relkind = 'r'
`, ``,
		tampered("a_rule_added")),
	change("verify-takes-parts-of-tables", "HF3", partsSQL,
		`                union all select 'a parent of ' || h.inhrelid::regclass::text from pg_inherits h where h.inhparent = c.oid
`, ``,
		tampered("a_table_given_a_part,_whose_changes_its_triggers_miss")),
	change("verify-ignores-texts-of-functions", "HF3", compareGo,
		`found != want.text && (ok`, `len(found) != len(want.text) && (ok`,
		tampered("a_trigger's_function_replaced")),
	change("verify-ignores-what-is-known", "HF3", headsGo,
		`	if !bytes.Equal(h.Hash[:], hash) {`, `	if !bytes.Equal(h.Hash[:], hash) && len(hash) == 0 {`,
		tampered("the_end_replaced,_with_hashes_and_a_fence_that_fit")),
	change("verify-ignores-that-the-end-was-known", "HF3", headsGo,
		`if c.partial || h.at > c.at {`, `if c.partial || h.at < c.at {`,
		tampered("an_older_dump_restored")),
	change("verify-ignores-resources-that-were-known", "HF3", "audit/verify_database.go",
		`if h := heads[len(heads)-1]; there(name) {`, `if h := heads[len(heads)-1]; there(name) && h.Seq == 0 {`,
		tampered("a_resource_removed_with_all_that_is_known_of_it")),
	change("verify-takes-heads-that-an-export-leaves-out-for-pruned", "HF4", "audit/verify_database.go",
		`v.counts.leftOutHeads.Add(1)`, `v.counts.prunedHeads.Add(1)`,
		Test{"audit", "TestVerifyExports_AgreesWithTheDatabase"}),
	change("verify-reads-several-states", "HF3", "audit/verify_snapshot.go",
		`"set transaction snapshot '"+s.id+"'; "`, `""`,
		Test{"audit", "TestVerify_FindsNothingBesideWritersAndPrunes"}),
	change("verify-takes-lines-in-any-form", "HF3", "internal/record/line.go",
		`if !bytes.Equal(r.again.Bytes(), r.text) {`, `if len(r.text) == 0 {`,
		forged("a_field_of_an_entry_doubled")),
	change("verify-ignores-what-the-end-says", "HF3", "internal/record/line.go",
		`(l.End.Lines != r.lines || !bytes.Equal(l.End.SHA256, r.sum.Sum(nil)))`, `l.End.Lines < 0`,
		forged("a_rejection_removed,_and_the_last_line_left_as_it_was")),
	change("verify-takes-an-export-that-was-cut-off", "HF3", "audit/verify_export.go",
		`		x.run.findings.add(*x.finding("is the last, and isn't the end: the export was cut off.", ""))
`, ``,
		forged("the_last_line_removed")),
}
