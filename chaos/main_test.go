package chaos_test

import (
	"testing"

	"github.com/fencekit/fencekit/chaos"
)

func TestMain(m *testing.M) { chaos.Main(m) }
