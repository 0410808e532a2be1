"""The programs of tests/gpu, which no machine without a GPU runs, find the names that they import."""

import ast
import pathlib
import unittest

GPU = pathlib.Path(__file__).resolve().parents[1] / "gpu"


def names_of(tree):
    """What a module defines at its top level."""
    names = set()
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names.update(alias.asname or alias.name for alias in node.names)
        elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names.update(name.id for target in targets for name in ast.walk(target)
                         if isinstance(name, ast.Name))
    return names


class GpuScripts(unittest.TestCase):
    def test_a_name_imported_from_another_script_exists_there(self):
        trees = {path.stem: ast.parse(path.read_text()) for path in GPU.glob("*.py")}
        imports = [(name, node.module, alias.name) for name, tree in trees.items()
                   for node in ast.walk(tree)
                   if isinstance(node, ast.ImportFrom) and node.module in trees
                   for alias in node.names]
        self.assertGreater(len(imports), 5)
        missing = [each for each in imports if each[2] not in names_of(trees[each[1]])]
        self.assertEqual(missing, [])


if __name__ == "__main__":
    unittest.main()
