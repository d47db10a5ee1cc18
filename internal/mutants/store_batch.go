package mutants

// batchMutants are in batches, and in what is sent ahead of a seal.
var batchMutants = []Mutant{
	change("batch-rows-affected-not-checked", "F1", pg+"migrations/0002_functions.sql",
		`    if p_count <> p_want then`, `    if false then`,
		inPostgres("TestBatch_FailsAsAWhole")),
	change("batch-rows-unbounded", "N12", pg+"migrations/0002_functions.sql",
		`    if octet_length(p_rows) > p_limit then`, `    if false then`,
		inPostgres("TestBatch_FailsAsAWhole")),
	change("batch-not-sent-before-the-next-operation", "F1", pg+"txn.go",
		"	if err := t.sendQueued(ctx); err != nil {\n		return err\n	}\n", "",
		inPostgres("TestBatch_RunsInOrderWithOthers")),
	change("batch-with-once-is-queued", "G4", "guard/call.go",
		`		op = storage.Func[Tx](op.Run) // its`, `		_ = op // its`,
		inPostgres("TestBatch_Once_G4")),
	change("batch-that-ended-its-transaction-is-in-doubt", "N15", pg+"internal/wire/send.go",
		`		a.endedAhead = status == 'I'`, `		_ = status`,
		inPostgres("TestBatch_WithACommitOfItsOwn_N15")),
	change("batch-has-results-of-a-run-that-failed", "G4", pg+"batch_queue.go",
		"		b.forget()\n", "",
		inPostgres("TestBatch_ForgetsResultsOfAnEarlierRun")),
	change("batch-position-is-in-what-was-sent", "L1", pg+"batch_statement.go",
		`		pgErr.Position -= head`, `		_ = head`,
		inPostgres("TestBatch_FailsAsAWhole")),
}
