// SPDX-License-Identifier: MIT
//
// The scheduler through its public class, on the small trained model: what it runs, in which order,
// and how texts end. Callbacks run on the scheduler's thread, so a request that is submitted in one
// arrives at a known place in the turn.

#include "tools/serve/schedule/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace qsf_tools {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::Ge;
using testing::HasSubstr;
using testing::Le;
using testing::Not;

// What happened, in order: "A admitted", "A token", "A ended", "A 429".
class Log {
 public:
  void add(const std::string& name, const std::string& what) {
    const std::lock_guard lock(mutex_);
    lines_.push_back(name + " " + what);
  }
  void clear() {
    const std::lock_guard lock(mutex_);
    lines_.clear();
  }
  std::vector<std::string> lines() const {
    const std::lock_guard lock(mutex_);
    return lines_;
  }
  int count(const std::string& line) const {
    const std::vector<std::string> all = lines();
    return static_cast<int>(std::count(all.begin(), all.end(), line));
  }
  // Where the line is for the first time; the number of lines where it is not.
  std::size_t first(const std::string& line) const {
    const std::vector<std::string> all = lines();
    return static_cast<std::size_t>(std::find(all.begin(), all.end(), line) - all.begin());
  }
  // How often `line` stands between the first `begin` and the first `end`.
  int count_between(const std::string& line, const std::string& begin,
                    const std::string& end) const {
    const std::vector<std::string> all = lines();
    const auto from = all.begin() + static_cast<std::ptrdiff_t>(std::min(first(begin), all.size()));
    return static_cast<int>(std::count(from, std::find(from, all.end(), end), line));
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
};

class TestJob : public ServeJob {
 public:
  TestJob(Log& log, std::string name, std::size_t n_prompt, int max_tokens)
      : log_(log), name_(std::move(name)), n_prompt_(n_prompt), max_tokens_(max_tokens) {}

  std::string model_name;
  std::string key = "none";
  int n = 1;
  std::size_t positions = 0;  // with n == 0: of its one step
  bool refused = false;
  std::function<void()> in_prepare = [] {};
  std::function<void(int n_tokens)> on_each_token = [](int) {};
  std::atomic<bool> full{false};
  std::atomic<bool> gone{false};
  std::string tokens;  // those drawn. Of the scheduler's thread until it ends

  const std::string& model() const noexcept override { return model_name; }
  const std::string& tenant() const noexcept override { return key; }
  std::optional<ApiError> prepare(const LoadedModel&, std::vector<TextRequest>& texts) override {
    in_prepare();
    if (refused) return ApiError();
    for (int i = 0; i < n; ++i) {
      TextRequest& text = texts.emplace_back();
      for (std::size_t at = 0; at < n_prompt_; ++at) {
        text.prompt.push_back(
            static_cast<int>(20 + (at * 7 + name_.back() + 31U * n_prompt_) % 300));
      }
      text.max_tokens = max_tokens_;
      text.ignore_end = true;
      qsf_sampling_init(&text.sampling);
      text.sampling.temperature = 0;
    }
    return std::nullopt;
  }
  bool compute_step(const LoadedModel&) override {
    log_.add(name_, "computed");
    return false;
  }
  std::size_t step_positions() const noexcept override { return positions; }
  void on_admitted() override { log_.add(name_, "admitted"); }
  bool on_token(std::size_t, const TextToken& token) override {
    if (token.is_rest) return true;
    log_.add(name_, "token");
    tokens += std::to_string(token.token) + " ";
    on_each_token(++n_tokens_);
    return true;
  }
  void on_text_end(std::size_t, const TextResult&) override {}
  void on_end() override { log_.add(name_, "ended"); }
  void on_error(const ApiError& error) override {
    log_.add(name_, std::to_string(error.status) + " " + error.code);
  }
  bool is_full() const noexcept override { return full; }
  bool is_gone() const noexcept override { return gone; }

 private:
  Log& log_;
  std::string name_;
  std::size_t n_prompt_;
  int max_tokens_;
  int n_tokens_ = 0;
};

class SchedulerTest : public testing::Test {
 protected:
  SchedulerTest() {
    model.engine.threads = 1;
    model.engine.max_seq_len = 512;
    model.engine.kv_positions = 2048;
    model.engine.speculate = "off";  // a token a pass
    model.prefix_cache = false;
    model.quiet = true;
    schedule.prefix_cache = false;
    schedule.max_texts = 4;
    schedule.park_folder = testing::TempDir();
  }
  ~SchedulerTest() override {
    if (!thread_.joinable()) return;
    scheduler->stop();
    thread_.join();
  }

  void open(const std::vector<std::string>& names = {"one"}) {
    model.engine.sequences = schedule.max_texts + 1;
    std::vector<ServedModel> served;
    for (const std::string& name : names) {
      served.push_back(
          {.id = name, .path = std::string(QSF_BIN_DIR "/../tests/tales-5M-4bit.qsf")});
    }
    models_ = std::make_unique<ServedModels>(std::move(served), model);
    scheduler = std::make_unique<Scheduler>(*models_, schedule, metrics);
  }
  // Runs all requests that were submitted, and those that they submit, to their ends.
  void run_to_the_end(const std::function<bool()>& done) {
    begin();
    wait_until(done);
    end();
  }
  void begin() {
    thread_ = std::thread([this] { EXPECT_EQ(scheduler->run(), ""); });
  }
  void end() {
    scheduler->drain();
    thread_.join();
  }
  static void wait_until(const std::function<bool()>& done) {
    for (int i = 0; i < 20'000 && !done(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    EXPECT_TRUE(done());
  }
  std::shared_ptr<TestJob> job(const std::string& name, std::size_t n_prompt, int max_tokens) {
    return std::make_shared<TestJob>(log, name, n_prompt, max_tokens);
  }
  void submit(const std::shared_ptr<TestJob>& job) {
    EXPECT_FALSE(scheduler->submit(job).has_value());
  }
  std::function<bool()> ended(const std::vector<std::string>& names) {
    return [this, names] {
      return std::all_of(names.begin(), names.end(), [this](const std::string& name) {
        return log.count(name + " ended") == 1;
      });
    };
  }

  ModelSettings model;
  ScheduleSettings schedule;
  ServeMetrics metrics;
  Log log;
  std::unique_ptr<Scheduler> scheduler;

 private:
  std::unique_ptr<ServedModels> models_;
  std::thread thread_;
};

constexpr double kTightGap = 1e-9;  // four prompt rows a pass
constexpr double kWideGap = 1000;   // all rows of a prompt in one pass, once rows are measured

TEST_F(SchedulerTest, TheShortestRemainingPromptComesFirst) {
  schedule.max_token_gap_seconds = kTightGap;
  open();
  const auto running = job("A", 8, 200);
  running->on_each_token = [this](int n_tokens) {
    if (n_tokens != 10) return;
    submit(job("L", 200, 2));
    submit(job("S", 20, 2));
  };
  submit(running);
  run_to_the_end(ended({"A", "L", "S"}));
  EXPECT_LT(log.first("S token"), log.first("L token"));
  // Its rows did not wait until the short one had generated its text.
  EXPECT_THAT(log.count_between("A token", "S admitted", "S token"), AllOf(Ge(4), Le(8)));
  EXPECT_THAT(log.count_between("A token", "L admitted", "L token"), AllOf(Ge(50), Le(60)));
}

TEST_F(SchedulerTest, ALongPromptIsNotOvertakenForEver) {
  schedule.max_token_gap_seconds = kTightGap;
  open();
  const auto running = job("A", 8, 480);
  // Whenever a short prompt is done, the next one comes.
  std::function<void(int)> submit_short = [&](int number) {
    if (number == 80 || log.count("L token") > 0) return;
    const auto next = job("S", 20, 1);
    next->on_each_token = [&submit_short, number](int) { submit_short(number + 1); };
    submit(next);
  };
  running->on_each_token = [&](int n_tokens) {
    if (n_tokens != 10) return;
    submit(job("L", 120, 1));
    submit_short(0);
  };
  submit(running);
  run_to_the_end([this] { return log.count("A ended") == 1; });
  EXPECT_LE(log.count_between("S ended", "L admitted", "L token"), 10);
  EXPECT_EQ(log.count("L ended"), 1);
}

TEST_F(SchedulerTest, PlacesAreGivenInTheOrderOfArrival) {
  schedule.max_texts = 2;
  open();
  for (const char* const name : {"A", "B", "C", "D"}) submit(job(name, 8, 30));
  run_to_the_end(ended({"A", "B", "C", "D"}));
  EXPECT_LT(std::min(log.first("A ended"), log.first("B ended")), log.first("C admitted"));
  EXPECT_LT(log.first("C admitted"), log.first("D admitted"));
}

TEST_F(SchedulerTest, ARequestIsAdmittedWhenItsPagesAreFree) {
  model.engine.kv_positions = 512;  // eight pages of 64
  open();
  submit(job("A", 8, 376));  // six of them
  submit(job("B", 8, 184));  // three
  submit(job("C", 8, 40));   // one, and behind B
  run_to_the_end(ended({"A", "B", "C"}));
  EXPECT_LT(log.first("A ended"), log.first("B admitted"));
  EXPECT_LT(log.first("B admitted"), log.first("C admitted"));
}

TEST_F(SchedulerTest, TextsThatNeverFitTogetherAreRefusedAtOnce) {
  model.engine.kv_positions = 512;
  open();
  const auto running = job("A", 8, 300);
  running->on_each_token = [this](int n_tokens) {
    if (n_tokens != 10) return;
    const auto large = job("L", 8, 248);  // three times four pages
    large->n = 3;
    submit(large);
  };
  submit(running);
  run_to_the_end(ended({"A"}));
  EXPECT_EQ(log.count("L 400 kv_cache_exceeded"), 1);
  EXPECT_LT(log.first("L 400 kv_cache_exceeded"), log.first("A ended"));
}

TEST_F(SchedulerTest, AJobWithoutTextsWaitsForItsPositions) {
  model.engine.kv_positions = 512;
  open();
  const auto running = job("A", 8, 376);
  running->on_each_token = [this](int n_tokens) {
    if (n_tokens != 10) return;
    const auto large = job("E", 0, 0);
    large->n = 0;
    large->positions = 200;
    submit(large);
    submit(job("B", 8, 40));  // behind it, though it would fit
    const auto small = job("F", 0, 0);
    small->n = 0;
    small->positions = 100;
    submit(small);
  };
  submit(running);
  run_to_the_end(ended({"A", "B"}));
  EXPECT_LT(log.first("A ended"), log.first("E computed"));
  EXPECT_LT(log.first("E computed"), log.first("B admitted"));
  EXPECT_LT(log.first("F computed"), log.first("A ended"));
}

TEST_F(SchedulerTest, AQueueThatIsFullRefuses) {
  schedule.max_texts = 1;
  schedule.max_waiting = 2;
  open();
  const auto running = job("A", 8, 60);
  const auto left = job("B", 8, 4);
  running->on_each_token = [&](int n_tokens) {
    if (n_tokens == 10) {
      submit(left);
      submit(job("C", 8, 4));
      const auto refused = scheduler->submit(job("D", 8, 4));
      ASSERT_TRUE(refused.has_value());
      EXPECT_EQ(refused->status, 429);
      EXPECT_GE(refused->retry_after_seconds, 1);
      left->gone = true;  // its place in the queue is free at the next turn
    }
    if (n_tokens == 12) submit(job("E", 8, 4));
  };
  submit(running);
  run_to_the_end(ended({"A", "C", "E"}));
  EXPECT_THAT(log.lines(), Not(Contains(HasSubstr("B "))));
}

TEST_F(SchedulerTest, WaitingTooLongIsTold) {
  schedule.max_texts = 1;
  schedule.max_wait_seconds = 1;  // longer than the model takes to load
  open();
  const auto running = job("A", 8, 4);
  running->full = true;
  submit(running);
  submit(job("B", 8, 4));
  begin();
  wait_until([this] { return log.count("B 429 server_busy") == 1; });
  running->full = false;
  scheduler->wake();
  wait_until(ended({"A"}));
  end();
}

TEST_F(SchedulerTest, ATextWhoseClientTakesNothingIsLeftOut) {
  open();
  const auto stalled = job("A", 8, 60);
  const auto other = job("B", 8, 60);
  stalled->on_each_token = [&](int n_tokens) { stalled->full = n_tokens == 10; };
  submit(stalled);
  submit(other);
  begin();
  wait_until(ended({"B"}));
  EXPECT_EQ(log.count("A token"), 10);
  stalled->full = false;
  scheduler->wake();
  wait_until(ended({"A"}));
  end();
  EXPECT_EQ(log.count("A token"), 60);
}

TEST_F(SchedulerTest, ATextWhoseClientHasGoneIsNotHeardOfAgain) {
  schedule.max_texts = 1;
  open();
  const auto left = job("A", 8, 500);
  left->on_each_token = [&](int n_tokens) {
    if (n_tokens == 10) left->gone = true;
  };
  submit(left);
  submit(job("B", 8, 4));
  run_to_the_end(ended({"B"}));
  EXPECT_EQ(log.count("A token"), 10);
  EXPECT_EQ(log.count("A ended"), 0);
}

TEST_F(SchedulerTest, DrainingFinishesWhatRunsAndRefusesWhatWaits) {
  schedule.max_texts = 1;
  open();
  const auto running = job("A", 8, 60);
  running->on_each_token = [&](int n_tokens) {
    if (n_tokens == 10) submit(job("B", 8, 4));
    if (n_tokens == 20) {
      scheduler->drain();
      const auto refused = scheduler->submit(job("C", 8, 4));
      ASSERT_TRUE(refused.has_value());
      EXPECT_EQ(refused->status, 503);
    }
  };
  submit(running);
  begin();
  wait_until(ended({"A"}));
  end();
  EXPECT_EQ(log.count("A token"), 60);
  EXPECT_EQ(log.count("B 503 "), 1);
}

TEST_F(SchedulerTest, ARequestThatArrivesAsDrainingBeginsIsAnswered) {
  open();
  const auto last = job("A", 8, 4);
  last->refused = true;
  last->in_prepare = [this] {
    // The inbox was emptied for this turn.
    submit(job("B", 8, 4));
    scheduler->drain();
  };
  submit(last);
  begin();
  wait_until([this] { return log.count("B 503 ") == 1; });
  end();
}

TEST_F(SchedulerTest, StoppingEndsWhatRuns) {
  open();
  const auto running = job("A", 8, 500);
  running->on_each_token = [&](int n_tokens) {
    if (n_tokens == 10) scheduler->stop();
  };
  submit(running);
  begin();
  wait_until([this] { return log.count("A 503 ") == 1; });
}

TEST_F(SchedulerTest, AParkedTextIsLeftAloneUntilAnotherOneHasEnded) {
  model.engine.kv_positions = 640;  // ten pages; each text takes seven in the end
  schedule.default_max_tokens = 1;  // what a text gave up would do to bring it back
  std::vector<std::string> alone;
  for (const bool together : {false, true}) {
    open();
    log.clear();
    std::vector<std::shared_ptr<TestJob>> jobs;
    for (const char* const name : {"A", "B", "C", "D"}) {
      auto& next = jobs.emplace_back(job(name, 43 - 11 * jobs.size(), -1));
      if (together) submit(next);
    }
    begin();
    std::vector<std::string> texts;
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      if (!together) submit(jobs[i]);
      const std::string name(1, static_cast<char>('A' + i));
      wait_until(ended({name}));
      EXPECT_EQ(log.count(name + " token"), 512 - 43 + 11 * static_cast<int>(i));
      texts.push_back(jobs[i]->tokens);
    }
    end();
    if (!together) {
      alone = texts;
      EXPECT_EQ(metrics.gauges().parkings, 0U);
    }
    EXPECT_EQ(texts, alone);
  }
  for (const char* const other : {"B ended", "C ended", "D ended"}) {
    EXPECT_LT(log.first("A ended"), log.first(other));  // the oldest was never parked
  }
  // Three give way at first, and at each end the others come back and one may give way again.
  EXPECT_THAT(metrics.gauges().parkings, AllOf(Ge(2U), Le(6U)));
}

TEST_F(SchedulerTest, RatesAreMeasuredAnewAfterAModelIsLoadedAgain) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP()
      << "shadow memory takes the room of prompt rows: passes are shorter for another reason";
#endif
  schedule.max_token_gap_seconds = kWideGap;
  model.prefix_cache = true;           // so that there may be that many pages:
  model.engine.kv_positions = 40'000;  // of two models they do not fit the budget
  model.engine.ram_budget_bytes = 220'000'000;
  open({"one", "two"});
  // Two texts; one generates while the prompt of the other is computed. The passes that do not end
  // it are counted.
  const auto run = [this](const char* first, const char* second, std::function<void()> at_end) {
    const auto running = job(first, 3, 60);  // too short to tell the time of a prompt's row
    running->on_each_token = [this, second, at_end = std::move(at_end)](int n_tokens) {
      if (n_tokens == 20) submit(job(second, 128, 2));
      if (n_tokens == 60) at_end();
    };
    submit(running);
  };
  const auto other = job("X", 8, 4);
  other->model_name = "two";
  other->refused = true;
  other->in_prepare = [this] { log.add("X", "loaded"); };
  run("A", "B", [&] {
    run("C", "D", [&] {
      // "one" is closed and loaded again in one turn.
      submit(other);
      run("E", "F", [] {});
    });
  });
  run_to_the_end(ended({"A", "B", "C", "D", "E", "F"}));
  EXPECT_EQ(log.count("X loaded"), 1);
  EXPECT_LT(metrics.gauges().budget_bytes, 2 * metrics.gauges().planned_bytes);
  EXPECT_EQ(log.count_between("A token", "B admitted", "B token"), 1);  // of 16 rows
  EXPECT_EQ(log.count_between("C token", "D admitted", "D token"), 0);
  EXPECT_EQ(log.count_between("E token", "F admitted", "F token"), 1);
}

TEST(ServedModelsTest, AdaptersAreFoundAndListedByName) {
  std::string error;
  const std::vector<ServedModel> base = {{.id = "base", .path = "/m/base.qsf"}};
  const auto adapters = list_adapters({"/a/red.qsf", "azure=/a/b=lue.qsf"}, base, error);
  ASSERT_TRUE(adapters.has_value()) << error;
  ModelSettings settings;
  settings.engine.adapters.scale = 0.5;
  settings.adapters = *adapters;
  const ServedModels models(base, settings);
  const auto adapter_of = [&models](std::string_view name) {
    const std::optional<ModelChoice> found = models.find(name);
    EXPECT_TRUE(found.has_value()) << name;
    return found ? found->adapter : TextAdapter{.number = -1, .scale = 0.0F};
  };
  for (const char* const name : {"", "base", "base:latest"}) {
    EXPECT_EQ(adapter_of(name), TextAdapter()) << name;
  }
  for (const char* const name : {"red", "red:latest"}) {
    EXPECT_EQ(adapter_of(name), (TextAdapter{.number = 1, .scale = 0.5F})) << name;
  }
  EXPECT_EQ(adapter_of("azure"), (TextAdapter{.number = 2, .scale = 0.5F}));
  EXPECT_FALSE(models.find("blue").has_value());

  const std::vector<ModelListing> all = models.listing();
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[0].parent, "");
  EXPECT_EQ(all[1].id + " " + all[1].parent + " " + all[1].path, "red base /a/red.qsf");
  EXPECT_EQ(all[2].id + " " + all[2].parent + " " + all[2].path, "azure base /a/b=lue.qsf");
}

TEST(ServedModelsTest, NamesOfAdaptersDiffer) {
  const std::vector<ServedModel> base = {{.id = "base", .path = "base.qsf"}};
  for (const std::vector<std::string>& bad :
       {std::vector<std::string>{"base.qsf"}, {"base=red.qsf"}, {"red.qsf", "red=blue.qsf"}}) {
    std::string error;
    EXPECT_FALSE(list_adapters(bad, base, error).has_value());
    EXPECT_THAT(error, HasSubstr("--lora: two models are called"));
  }
}

}  // namespace
}  // namespace qsf_tools
