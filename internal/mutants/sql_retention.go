package mutants

// retentionMutants let a prune delete what is needed.
var retentionMutants = []Mutant{
	change("prune-takes-the-last-entry", "N26", retentionSQL,
		`least(p_end, r.seq - greatest(p_entries, 1) + 1)`, `least(p_end, r.seq + 1)`,
		inPostgres("TestPruneHistory_KeepsWhatThePolicyKeeps")),
	change("prune-takes-young-entries", "G4", retentionSQL,
		`greatest(p_keep, '1 hour');`, `greatest(p_keep, '1 second');`,
		inPostgres("TestPruneHistory_KeepsWhatIsNeeded/young")),
	change("prune-ignores-holds", "HF4", retentionSQL,
		`where r.id = p_resource and not exists (select from {{schema}}.hold h where h.name = r.name);`, `where r.id = p_resource;`,
		inPostgres("TestPruneHistory_KeepsWhatIsNeeded/on_hold")),
	change("prune-takes-claims-of-running-transactions", "L1", retentionSQL,
		`c.kind = 'c' and c.seq < v_end and`, `false and`,
		inPostgres("TestPruneHistory_KeepsWhatIsNeeded/a_claim_under_which_a_transaction_runs")),
	change("prune-takes-the-claim-of-what-is-left", "G3", retentionSQL,
		`
           and seq <> (select e.claim from {{schema}}.history e where e.resource = p_resources[i] and e.seq = p_ends[i]);`, `;`,
		inPostgres("TestPruneHistory_LeavesWhatRebuildsAFence_G3")),
	change("history-is-deleted-by-hand", "HB12", retentionSQL,
		`{{schema}}.history enable always trigger protect_kept_history;`, `{{schema}}.history disable trigger protect_kept_history;`,
		inPostgres("TestHistory_IsAppendOnly")),
	change("checkpoint-advances-over-what-is-kept", "HB12", retentionSQL,
		`
        and {{schema}}.first_kept(new.resource, v_first, new.first, s.history_keep, s.history_keep_entries) = new.first`, ``,
		inPostgres("TestPruneHistory_KeepsWhatIsNeeded/on_hold")),
	change("checkpoint-is-deleted", "HB12", retentionSQL,
		`{{schema}}.checkpoint enable always trigger protect_checkpoint_rows;`, `{{schema}}.checkpoint disable trigger protect_checkpoint_rows;`,
		inPostgres("TestHistory_IsOnlyPruned_HB12")),
	change("prune-beside-another", "L1", retentionSQL,
		` or not pg_try_advisory_xact_lock(('{{schema}}.checkpoint'::regclass::oid::bigint & 2147483647)::integer, 0) then`, ` then`,
		inPostgres("TestPruneHistory_StandsInNoWay_L1")),
	change("deleted-before-the-export-is-durable", "HF4", "storage/postgres/retention.go",
		`if p.Export != nil {
		if err := p.Export.Sync(); err != nil {`, `if p.Export != nil {
		if err := error(nil); err != nil {`,
		inPostgres("TestPruneHistory_ExportsBeforeItDeletes")),
}
