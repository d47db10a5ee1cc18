// Command fencekit-vet runs package vet: go vet -vettool=$(which fencekit-vet) ./..., or fencekit-vet ./...
package main

import (
	"golang.org/x/tools/go/analysis/singlechecker"

	"github.com/fencekit/fencekit/vet"
)

func main() { singlechecker.Main(vet.Analyzer) }
