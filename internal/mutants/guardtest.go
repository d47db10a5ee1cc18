package mutants

const gt = "guard/guardtest/"

// guardtestMutants are in the checks that service authors run on their own code.
var guardtestMutants = []Mutant{
	change("no-answer-is-lost", "G4", gt+"idempotent.go",
		`if c.lost || reflect.DeepEqual(before, c.at) {`, `if true || reflect.DeepEqual(before, c.at) {`,
		Test{"guard/guardtest", "TestRequireIdempotent_ReportsASecondEffect/remembers_the_answer_in_memory"}),
	change("no-commit-is-lost", "G4", gt+"idempotent.go",
		`loseCommit: n == 0}`, `loseCommit: n < 0}`,
		Test{"guard/guardtest", "TestRequireIdempotent_ReportsAWrongAnswer/notes_it_before"}),
	change("unknown-is-known-at-once", "G4", gt+"idempotent.go",
		`silent := c.lost && !c.asked`, `silent := false && !c.asked`,
		Test{"guard/guardtest", "TestRequireIdempotent_ReportsASecondEffect/remembers_the_answer_in_memory"}),
	change("requirefenced-shuts-a-real-service-out", "N25 L1", gt+"trial.go",
		`if rejection.Reason == storage.ReasonTokenJump {`, `if false {`,
		Test{"storage/postgres", "TestRequireFenced_LeavesTheDatabaseOfALockServiceAlone"}),
}
