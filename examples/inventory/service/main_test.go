package service

import (
	"testing"

	"github.com/fencekit/fencekit/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }
