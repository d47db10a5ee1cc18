package mutants

const mem = "storage/memory/"

// memoryMutants are in the reference store.
var memoryMutants = []Mutant{
	change("memory-claims-a-lower-token", "G3", mem+"store.go",
		`case order < 0:
		return storage.Claim{}, r.reject`, `case false:
		return storage.Claim{}, r.reject`,
		inMemory("TestStore_PassesTheContract")),
	change("memory-claims-for-any-holder", "N10", mem+"store.go",
		`case order == 0 && grant != r.fence.Grant:
		return storage.Claim{}`, `case false:
		return storage.Claim{}`,
		inMemory("TestStore_PassesTheContract")),
	change("memory-claims-in-an-epoch-that-is-over", "N20", mem+"store.go",
		`case grant.Epoch < s.highest.Epoch:`, `case false:`,
		inMemory("TestStore_PassesTheContract")),
	change("memory-claim-does-not-raise", "G1", mem+"store.go",
		`r.move(grant, newTxID(), storage.KindClaim, nil)`, ``,
		inMemory("TestStore_PassesTheContract")),
	change("memory-seals-without-the-grant", "G2", "storage/rejection.go",
		`case order > 0:`, "case at == c.Position:\n\t\treturn \"\"\n\tcase order > 0:",
		inMemory("TestStore_PassesTheContract")),
	change("memory-seals-without-the-position", "G6 N10", "storage/rejection.go",
		`case order > 0:`, "case current == c.Grant:\n\t\treturn \"\"\n\tcase order > 0:",
		inMemory("TestStore_PassesTheContract")),
	change("memory-does-not-check-at-the-seal", "G2", mem+"store.go",
		`if err := s.check(t.claims, storage.StageSeal); err != nil {`, `if err := s.check(t.claims[:0], storage.StageSeal); err != nil {`,
		inMemory("TestStore_PassesTheContract")),
	change("memory-seals-the-first-fence-only", "G2", mem+"store.go",
		`if err := s.check(t.claims, storage.StageSeal); err != nil {`, `if err := s.check(t.claims[:1], storage.StageSeal); err != nil {`,
		inMemory("TestStore_PassesTheContract")),
	change("memory-does-not-check-at-begin", "N17", mem+"store.go",
		`if err := s.beginCheck(claims); err != nil {
		return nil, err
	}
	s.open++`, `s.open++`,
		inMemory("TestBegin_RejectsAtTheBeginCheckWhatCantCommit")),
	change("memory-writes-no-void", "G4 N9", mem+"store.go",
		`r.move(c.Grant, newTxID(), storage.KindVoid, nil)`, ``,
		inMemory("TestStore_PassesTheContract")),
	change("memory-takes-any-transaction-for-the-one", "G4", mem+"store.go",
		`return r.entries[c.Seq].Tx == d.Tx, nil`, `return true, nil`,
		inMemory("TestStore_PassesTheContract")),
	change("memory-answers-for-positions-ahead", "G4 N21", mem+"store.go",
		`if c.Seq >= int64(len(r.entries)) {
		return false, r.reject(storage.ReasonWentBack, storage.StageSeal, c.Grant, r.fence)`, `if c.Seq >= int64(len(r.entries)) {
		return false, nil`,
		inMemory("TestResolve_KnowsNothingOfPositionsAhead")),
	change("memory-records-no-rejection", "G5", mem+"history.go",
		`r.rejections = append(r.rejections, record)`, ``,
		inMemory("TestStore_PassesTheContract")),
	change("memory-commits-after-a-failure", "G4", mem+"txn.go",
		"\tif t.over != nil {\n\t\treturn nil, fmt", "\tif false {\n\t\treturn nil, fmt",
		inMemory("TestRun_NothingOfAGroupCommitsAfterAFailure")),
	change("memory-lets-late-statements-write", "HG3", mem+"txn.go",
		`if tx.ended || tx.txn.ended {
		return storage.ErrTxEnded
	}
	if tx.txn.readOnly {`, `if tx.txn.readOnly {`,
		inMemory("TestTx_IsUnusableOnceItsOperationHasReturned")),
	change("memory-takes-any-request-of-once", "G4", mem+"once.go",
		`if k.request != key.Request {`, `if false {`,
		inMemory("TestStore_PassesTheContract")),
	change("memory-answers-once-from-behind-the-claim", "G2", mem+"once.go",
		`if err := s.check([]storage.Claim{c}, storage.StageBegin); err != nil {
			return nil, false, err
		}
		`, ``,
		inMemory("TestStore_PassesTheContract")),
	change("memory-writes-the-first-move-for-all", "G2 G4", mem+"store.go",
		`move = moves[i]`, `move = moves[0]`,
		inMemory("TestStore_PassesTheContract")),
	change("memory-keeps-nothing", "G4", mem+"store.go",
		`for _, k := range move.Kept {`, `for _, k := range move.Kept[:0] {`,
		inMemory("TestStore_PassesTheContract")),
	change("memory-takes-calls-for-one-that-has-ended", "G4", mem+"store.go",
		`if err := ctx.Err(); err != nil { // a call`, `if err := error(nil); err != nil { // a call`,
		inMemory("TestStore_PassesTheContract/Group_TakesNoCallsWhenCtxHasEnded_G4")),
	change("memory-claims-nothing-if-one-is-rejected", "G3", mem+"store.go",
		`rejections = append(rejections, err)`, `return nil, err`,
		inMemory("TestStore_PassesTheContract")),
}

// inMemory is a test of the reference store.
func inMemory(name string) Test { return Test{"storage/memory", name} }
