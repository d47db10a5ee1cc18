package testenv

import (
	"os"
	"testing"
)

// orphanVar makes this test binary an owner that is going to be killed.
const orphanVar = "FENCEKIT_TESTENV_ORPHAN"

func TestMain(m *testing.M) {
	if os.Getenv(orphanVar) != "" {
		beOrphaned()
	}
	Main(m)
}
