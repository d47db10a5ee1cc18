package service

import (
	"testing"

	"github.com/fencekit/fencekit/internal/test/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }
