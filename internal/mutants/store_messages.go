package mutants

// messageMutants are in what the store says of an operation that failed.
var messageMutants = []Mutant{
	change("tx-names-no-failure-before-ignored-statements", "G4 L1", pg+"internal/operation/session.go",
		`return s.notReturned(err)`, `return err`,
		inPostgres("TestRun_NamesTheFailureBeforeIgnoredStatements")),
}
