package mutants

import "strings"

// checkMutants take what one property says out of the judgement.
var checkMutants = []Mutant{
	silent("I1", "ofFenced, tokens", "TestTokens_I1"),
	silent("I2", "ofAnyStock, conservation", "TestConservation_I2"),
	silent("I3", "ofAnyStock, outcomes", "TestOutcomes_I3"),
	silent("I4", "ofAnyStock, acknowledged", "TestAcknowledged_I4"),
	silent("I5", "ofFenced, register", "TestRegister_I5"),
	silent("I6", "ofFenced, rejections", "TestRejections_I6"),
	silent("I7", "ofFenced, provenance", "TestProvenance_I7"),
	silent("I8", "ofFenced, agreement", "TestAgreement_I8"),
	silent("I9", "ofAny, progress", "TestProgress_I9"),
	silent("I10", "ofFencedStock, recorded", "TestRecorded_I10"),
	silent("I11", "ofRequired, required", "TestRequired_I11"),
	silent("I12", "ofFenced, ownership", "TestOwnership_I12"),
	silent("I13", "ofFenced, verified", "TestVerified_I13"),
	silent("run", "ofAny, run", "TestRun_PassesOnWhatWentWrongBesideTheData"),
	silent("workload", "ofAny, workload", "TestWorkload_PassesOnWhatItSaid"),
	change("check-I9-is-content-with-one", "L1 I9", check+"progress.go",
		`return !op.succeeded() && (op.ended`, `return false && (op.ended`,
		inCheck("TestProgress_I9")),
}

const check = "chaos/internal/check/"

func inCheck(name string) Test { return Test{"chaos/internal/check", name} }

// silent is a property that finds nothing wrong, whatever it is shown.
func silent(property, entry, test string) Mutant {
	applies, _, _ := strings.Cut(entry, ",")
	return change("check-"+property+"-finds-nothing", property, check+"property.go",
		entry+"},", applies+", func(*view, *tally) {}},", inCheck(test))
}
