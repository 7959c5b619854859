"""Shows that each rule of check_floors.py catches what it should and nothing else: check_floors.py --self-test."""

import json
import sys
import tempfile
import unittest
from pathlib import Path

import check_floors
import floors_picture


class Rules(unittest.TestCase):
    """Each test lays out a small house in a folder of its own."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = Path(self.folder.name).resolve()

    def write(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def problems(self, *checks: str) -> list[str]:
        house = check_floors.House(self.root)
        for check in checks:
            getattr(house, f"check_{check}")()
        return house.report.problems

    def test_an_include_that_points_down_is_fine(self):
        self.write("src/base/a.h", "// a.h: x\n#pragma once\n")
        self.write("src/model/b.cpp", '#include "base/a.h"\n#include <vector>\n')
        self.assertEqual(self.problems("includes", "words", "lengths"), [])

    def test_an_include_that_points_up_is_named_with_file_and_line(self):
        self.write("src/model/b.h", "// b.h: x\n")
        self.write("src/base/a.cpp", '// one\n\n#include "model/b.h"\n')
        (problem,) = self.problems("includes")
        self.assertTrue(problem.startswith("src/base/a.cpp:3: "), problem)
        self.assertIn("base may not see model", problem)

    def test_neighbours_do_not_see_each_other(self):
        for user, used in (("formats", "kernels"), ("kernels", "formats"), ("state", "text"), ("text", "state"),
                           ("state", "formats")):
            with self.subTest(user=user, used=used):
                target = self.write(f"src/{used}/there.h", "// there.h: x\n")
                source = self.write(f"src/{user}/here.cpp", f'#include "{used}/there.h"\n')
                (problem,) = self.problems("includes")
                self.assertIn(f"{user} may not see {used}", problem)
                target.unlink()
                source.unlink()

    def test_a_public_header_belongs_to_the_floor_that_implements_it(self):
        self.write("include/kvtide/state.h", "// state.h: x\n")
        self.write("src/state/state.cpp", '#include "kvtide/state.h"\n')
        self.write("src/base/a.cpp", '#include "kvtide/state.h"\n')
        (problem,) = self.problems("includes")
        self.assertIn("src/base/a.cpp:1", problem)

    def test_a_public_header_of_no_floor_is_named(self):
        self.write("include/kvtide/mystery.h", "// mystery.h: x\n")
        (problem,) = self.problems("includes")
        self.assertIn("PUBLIC_FLOORS", problem)

    def test_an_include_without_its_folder_or_of_a_missing_file_is_named(self):
        self.write("src/base/a.h", "// a.h: x\n")
        self.write("src/base/a.cpp", '#include "a.h"\n#include "base/b.h"\n')
        self.assertEqual(len(self.problems("includes")), 2)

    def test_the_bindings_see_public_headers_and_their_own_files_only(self):
        self.write("include/kvtide/types.h", "// types.h: x\n")
        self.write("src/base/text.h", "// text.h: x\n")
        self.write("python/native/own.h", "// own.h: x\n")
        self.write("python/native/a.cpp", '#include "own.h"\n#include "kvtide/types.h"\n#include "base/text.h"\n')
        (problem,) = self.problems("bindings")
        self.assertTrue(problem.startswith("python/native/a.cpp:3: "), problem)

    def test_a_cycle_is_named_once_with_its_way_round(self):
        self.write("src/base/a.h", '// a.h: x\n#include "base/b.h"\n')
        self.write("src/base/b.h", '// b.h: x\n#include "base/a.h"\n')
        (problem,) = self.problems("includes")
        self.assertEqual(problem, "cycle of includes: src/base/a.h -> src/base/b.h -> src/base/a.h")

    def test_folders_that_include_each_other_are_named_with_their_includes(self):
        self.write("src/state/state.h", '// state.h: x\n#include "state/past/memory.h"\n')
        self.write("src/state/spec.h", "// spec.h: x\n")
        self.write("src/state/past/memory.h", '// memory.h: x\n#include "state/spec.h"\n')
        self.write("src/model/a.h", '// a.h: x\n#include "state/state.h"\n')
        (problem,) = self.problems("includes")
        self.assertIn("cycle of folders: ", problem)
        self.assertIn("src/state -> src/state/past", problem)
        self.assertIn("src/state/past/memory.h includes src/state/spec.h", problem)

    def test_folders_that_see_one_another_downwards_only_are_fine(self):
        self.write("src/state/state.h", '// state.h: x\n#include "state/past/memory.h"\n')
        self.write("src/state/spec/spec.h", "// spec.h: x\n")
        self.write("src/state/past/memory.h", '// memory.h: x\n#include "state/spec/spec.h"\n')
        self.write("src/state/arrays/a.cpp", '#include "state/state.h"\n#include "state/spec/spec.h"\n')
        self.assertEqual(self.problems("includes"), [])

    def test_rooms_of_the_program_see_neither_commands_nor_one_another(self):
        for name in ("commands/run", "output/json", "arguments/flags"):
            self.write(f"src/cli/{name}.h", f"// {name.split('/')[1]}.h: x\n")
        for user, used in (("arguments", "commands/run"), ("output", "commands/run"), ("arguments", "output/json"),
                           ("output", "arguments/flags")):
            with self.subTest(user=user, used=used):
                source = self.write(f"src/cli/{user}/here.cpp", f'#include "cli/{used}.h"\n')
                (problem,) = self.problems("includes")
                self.assertIn(f"cli/{user} may not see cli/{used.split('/')[0]}", problem)
                source.unlink()
        self.write("src/cli/commands/run.cpp", '#include "cli/arguments/flags.h"\n#include "cli/output/json.h"\n')
        self.write("src/cli/main.cpp", '#include "cli/commands/run.h"\n')
        self.assertEqual(self.problems("includes"), [])

    def test_parsing_a_command_line_measures_nothing(self):
        self.write("src/eval/speed.h", "// speed.h: x\n")
        self.write("include/kvtide/validate.h", "// validate.h: x\n")
        self.write("src/cli/commands/a.cpp", '#include "eval/speed.h"\n')
        self.write("src/cli/arguments/a.cpp", '#include "eval/speed.h"\n#include "kvtide/validate.h"\n')
        self.assertEqual(len(self.problems("includes")), 2)

    def test_third_party_includes_stay_out_of_headers(self):
        self.write("src/base/a.h", "// a.h: x\n#include <nlohmann/json.hpp>\n")
        self.write("src/cli/b.cpp", "#include <nlohmann/json.hpp>\n")
        (problem,) = self.problems("includes")
        self.assertIn("src/base/a.h:2", problem)

    def test_each_forbidden_word_is_found_outside_cli_and_allowed_inside(self):
        words = ('printf("x");', "std::cerr << 1;", "std::exit(1);", "::abort();", 'std::getenv("HOME");',
                 "thread_local int x;", "std::regex r;", "#include <iostream>", 'fprintf(f, "x");', "std::terminate();")
        for word in words:
            with self.subTest(word=word):
                self.write("src/base/a.cpp", f"// first line\n{word}\n")
                self.write("src/cli/main.cpp", f"{word}\n")
                (problem,) = self.problems("words")
                self.assertTrue(problem.startswith("src/base/a.cpp:2: "), problem)

    def test_words_in_comments_strings_and_longer_names_are_fine(self):
        self.write("src/base/a.cpp", '\n'.join([
            "// never call exit() or printf()", "/* thread_local\n std::regex */", 'auto s = "std::cout << abort()";',
            "std::snprintf(b, 9, f);", "on_exit(3);", "loop.exit(2);", 'auto r = R"(getenv("x"))";',
            "const int n = 1'000'000; char c = '\"'; int exit_code = 0;", ""]))
        self.assertEqual(self.problems("words"), [])

    def test_code_after_a_string_with_an_escaped_quote_is_still_read(self):
        self.write("src/base/a.cpp", 'auto s = "a\\"//b"; std::exit(1);\n')
        self.assertEqual(len(self.problems("words")), 1)

    def test_fast_maths_is_found_in_sources_and_build_files(self):
        self.write("src/cli/a.cpp", '#pragma GCC optimize("O3")\n')
        self.write("CMakeLists.txt", "add_compile_options(-ffast-math)\n")
        self.assertEqual(len(self.problems("words", "build_files")), 2)

    def test_compile_commands_need_the_one_arithmetic(self):
        commands = self.write("commands.json", json.dumps([
            {"file": "good.cpp", "command": "g++ -O2 -ffp-contract=off -c good.cpp"},
            {"file": "bare.cpp", "command": "g++ -O2 -c bare.cpp"},
            {"file": "fused.cpp", "arguments": ["g++", "-ffp-contract=off", "-ffp-contract=fast"]},
            {"file": "fast.cpp", "command": "g++ -ffp-contract=off -Ofast -c fast.cpp"}]))
        house = check_floors.House(self.root)
        house.check_commands(commands)
        self.assertEqual([p.split(":")[0] for p in house.report.problems], ["bare.cpp", "fused.cpp", "fast.cpp"])

    def test_length_is_noted_above_300_and_refused_above_500_except_for_generated_tables(self):
        self.write("src/base/a.cpp", "\n" * 301)
        self.write("src/base/b.cpp", "\n" * 501)
        self.write("src/base/c.cpp", "// Generated by tools/make_c.py\n" + "\n" * 2000)
        house = check_floors.House(self.root)
        house.check_lengths()
        self.assertEqual([len(house.report.notes), len(house.report.problems)], [1, 1])
        self.assertIn("src/base/b.cpp", house.report.problems[0])

    def test_a_header_opens_with_what_it_is(self):
        self.write("src/base/a.h", "#pragma once\n")
        (problem,) = self.problems("lengths")
        self.assertIn("// a.h: ", problem)

    def test_public_headers_are_few_standard_and_compile_alone(self):
        for number in range(check_floors.MOST_PUBLIC_HEADERS):
            self.write(f"include/kvtide/h{number}.h", f"// h{number}.h: x\n#pragma once\n#include <cstdint>\n")
        house = check_floors.House(self.root)
        house.check_public_headers("g++")
        self.assertEqual(house.report.problems, [])
        self.write("include/kvtide/more.h", "// more.h: x\n#include <sys/stat.h>\nstd::string forgotten();\n")
        house = check_floors.House(self.root)
        house.check_public_headers("g++")
        self.assertEqual(len(house.report.problems), 3, house.report.problems)

    def test_home_paths_are_found_and_ordinary_paths_are_not(self):
        bad = self.write("notes.md", "see /" + "home/someone/models and /" + "root/x\n")
        good = self.write("fine.md", "see ../root/x, $ROOT/root/y, /usr/lib and /homepage/of/x\n")
        house = check_floors.House(self.root)
        house.check_private_places([bad])
        self.assertEqual(len(house.report.problems), 2, house.report.problems)
        house = check_floors.House(self.root)
        house.check_private_places([good])
        self.assertEqual(house.report.problems, [])

    def test_the_pictures_name_every_floor_and_mark_an_upward_edge(self):
        edges = {("model", "state"): 3, ("base", "model"): 1}
        files = dict.fromkeys(check_floors.BELOW, 2)
        text = floors_picture.dot(check_floors.BELOW, edges, files, files)
        self.assertIn('"state" -> "model" [dir=back, label="3"]', text)
        self.assertIn("color=red", text)
        picture = floors_picture.svg(check_floors.BELOW, edges, files, files)
        for floor in check_floors.BELOW:
            self.assertIn(f">{floor}<", picture)
        self.assertEqual(picture.count("#d02020"), 1)


def main() -> int:
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(Rules)
    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=0).run(suite)
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
