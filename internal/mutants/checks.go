package mutants

import "strings"

// checkMutants take what one property says out of the judgement.
var checkMutants = []Mutant{
	silent("I1", "ofFenced, tokens", "TestTokens"),
	silent("I2", "ofAnyStock, conservation", "TestConservation"),
	silent("I3", "ofAnyStock, outcomes", "TestOutcomes"),
	silent("I4", "ofAnyStock, acknowledged", "TestAcknowledged"),
	silent("I5", "ofFenced, register", "TestRegister"),
	silent("I6", "ofFenced, rejections", "TestRejections"),
	silent("I7", "ofFenced, provenance", "TestProvenance"),
	silent("I8", "ofFenced, agreement", "TestAgreement"),
	silent("I9", "ofAny, progress", "TestProgress"),
	silent("I10", "ofFencedStock, recorded", "TestRecorded"),
	silent("I11", "ofRequired, required", "TestRequired"),
	silent("I12", "ofFenced, ownership", "TestOwnership"),
	silent("I13", "ofFenced, verified", "TestVerified"),
	silent("run", "ofAny, run", "TestRun_PassesOnWhatWentWrongBesideTheData"),
	silent("workload", "ofAny, workload", "TestWorkload_PassesOnWhatItSaid"),
	change("check-I9-is-content-with-one", "L1 I9", check+"progress.go",
		`return !op.succeeded() && (op.ended`, `return false && (op.ended`,
		inCheck("TestProgress")),
}

const check = "chaos/internal/check/"

func inCheck(name string) Test { return Test{"chaos/internal/check", name} }

// silent is a property that finds nothing wrong, whatever it is shown.
func silent(property, entry, test string) Mutant {
	applies, _, _ := strings.Cut(entry, ",")
	return change("check-"+property+"-finds-nothing", property, check+"property.go",
		entry+"},", applies+", func(*view, *tally) {}},", inCheck(test))
}
