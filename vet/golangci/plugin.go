// Package golangci makes package vet a module plugin of golangci-lint, named fencekit. It has no settings.
package golangci

import (
	"github.com/golangci/plugin-module-register/register"
	"golang.org/x/tools/go/analysis"

	"github.com/fencekit/fencekit/vet"
)

func init() {
	register.Plugin("fencekit", func(any) (register.LinterPlugin, error) { return plugin{}, nil })
}

type plugin struct{}

func (plugin) BuildAnalyzers() ([]*analysis.Analyzer, error) {
	return []*analysis.Analyzer{vet.Analyzer}, nil
}

func (plugin) GetLoadMode() string { return register.LoadModeTypesInfo }
